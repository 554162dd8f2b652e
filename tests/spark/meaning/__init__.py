"""Entries of the table of known constructs, compared between PostgreSQL and Spark."""
