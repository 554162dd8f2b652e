"""Sinks: search indexes, caches and lake tables that follow the topics."""
