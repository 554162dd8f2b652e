"""From the log to typed changes: which offsets a cut reads, and how records become rows."""
