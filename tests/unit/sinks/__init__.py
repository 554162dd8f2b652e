"""Unit tests of sinks."""
