"""The audit: recomputes counts and hashes from the topics and compares them with the cut index."""
