"""The daemon's HTTP surface."""
