"""Logs, metrics and status documents: what an operator sees of capture and sinks."""
