"""The bytes PostgreSQL sends: frames and pgoutput messages. Pure."""
