"""`make demo`: a live workload, captured exactly once, and the proof at the end."""
