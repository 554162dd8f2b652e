"""The connection to PostgreSQL: replication stream, slot, publication and catalog."""
