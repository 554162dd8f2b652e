"""Local servers for development and tests, without containers."""
