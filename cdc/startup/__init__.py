"""The start-up protocol: from a configuration to a pipeline that may stream."""
