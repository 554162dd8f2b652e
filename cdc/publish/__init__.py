"""Writes a batch as one Kafka transaction of events, progress and cut, and creates and checks topics."""
