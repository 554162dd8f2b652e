"""The pure core of capture: frames in, a batch of records and a position out."""
