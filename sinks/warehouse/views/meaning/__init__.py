"""Gives a view in PostgreSQL's SQL its PostgreSQL meaning in Spark SQL, or refuses it. Pure."""
