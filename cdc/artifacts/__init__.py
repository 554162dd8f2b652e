"""Downloads of pinned files, the Java that runs them, and the cache folder of both."""
