"""The edge to PostgreSQL: streaming session, slot, publication, catalog."""
