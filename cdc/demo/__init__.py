"""`make demo`: a live workload, captured exactly once, with a proof at the end."""
