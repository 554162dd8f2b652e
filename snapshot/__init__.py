"""Snapshots: read the rows that were in tables before capture began, exactly and while changes flow."""
