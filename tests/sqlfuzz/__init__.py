"""Differential fuzzing of views: the same query on PostgreSQL and as a view must give the same rows."""
