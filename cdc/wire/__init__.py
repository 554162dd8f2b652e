"""Decodes the bytes that PostgreSQL sends: frames, pgoutput messages and COPY lines. Pure."""
