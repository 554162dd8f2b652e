"""Sinks: keep search indexes, caches and lake tables in step with the topics."""
