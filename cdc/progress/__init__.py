"""Reads and writes the recorded state of capture: progress, identity, snapshots, signals, catalog facts and outbox."""
