"""The HTTP endpoints of capture and sinks."""
