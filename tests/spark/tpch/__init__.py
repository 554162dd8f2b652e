"""The queries of TPC-H over captured tables, compared with PostgreSQL under load."""
