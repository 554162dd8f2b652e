"""The state of a sink in Kafka besides offsets: pauses, claims, reports, the topics it has read."""
