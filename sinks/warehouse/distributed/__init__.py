"""Writes the tables of a lake in Spark's executors. The driver reads and commits metadata only."""
