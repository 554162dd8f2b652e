"""TPC-H: the specification's tables and queries, its data, and changes like its refresh functions."""
