"""Writes Iceberg metadata beside the Delta logs of a lake, so that Iceberg readers see its cuts."""
