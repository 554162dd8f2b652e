"""Reads a lake at one cut, with and without Spark."""
