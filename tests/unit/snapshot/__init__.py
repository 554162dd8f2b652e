"""Unit tests of snapshots."""
