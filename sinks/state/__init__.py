"""What a sink records in Kafka besides offsets: pauses, claims, reports, the topics it has read."""
