"""Sinks that converge. Not built yet; the package holds its place in the layout."""
