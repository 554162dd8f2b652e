"""Runs the processes of the service: capture, sinks, retries and restarts."""
