"""Starts capture: from a configuration to a pipeline that streams."""
