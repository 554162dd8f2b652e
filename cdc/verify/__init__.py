"""Checks that stand outside of the pipeline: fold the log, compare with the tables."""
