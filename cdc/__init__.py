"""Tailrace: change data capture for PostgreSQL, exactly once, into compacted Kafka topics."""

__version__ = "0.2.0"
