"""Pinned files from a Maven repository, the Java to run them, and the cache folder both live in."""
