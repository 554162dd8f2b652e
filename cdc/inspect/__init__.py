"""Read-only views of a pipeline for the command line: its state, its snapshots, its events."""
