"""Publishes views as compacted topics."""
