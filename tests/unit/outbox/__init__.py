"""Unit tests of the outbox."""
