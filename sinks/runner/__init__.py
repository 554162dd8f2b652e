"""The loop of search and cache sinks: read the log, apply each key in order, commit offsets."""
