"""Compares topics with tables and sinks with topics, independently of the pipeline."""
