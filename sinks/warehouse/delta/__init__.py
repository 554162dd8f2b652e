"""Delta tables without a JVM: commits, merges, file statistics."""
