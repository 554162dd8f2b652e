"""Unit tests of capture and its commands."""
