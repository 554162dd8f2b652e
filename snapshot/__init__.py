"""Exact snapshots while the stream flows. Not built yet; the package holds its place in the layout."""
