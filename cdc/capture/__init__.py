"""The core of capture: reads frames of the stream, and produces batches of records and a position."""
