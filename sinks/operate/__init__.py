"""What operators do with sinks: see their state, pause them, handle dead letters, wait for an LSN."""
