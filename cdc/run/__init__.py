"""The processes of the service: capture with its retries, sinks beside it, and how both are put together."""
