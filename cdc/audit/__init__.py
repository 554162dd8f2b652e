"""The read-back audit: recomputes from the log what the cut index says of it, and names what differs."""
