"""Real PostgreSQL and Kafka on this machine without Docker."""
