"""The only importer of the Kafka client: producer, consumer, admin, error translation."""
