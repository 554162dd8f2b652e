"""One batch, one Kafka transaction: events, progress and cut together."""
