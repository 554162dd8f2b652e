"""Operator tasks for sinks: show their state, handle dead letters, wait for an LSN."""
