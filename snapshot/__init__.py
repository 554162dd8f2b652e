"""Exact snapshots while the stream flows: what was in the tables before capture began joins the log."""
