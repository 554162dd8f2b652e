"""The restart state and the cut index, as they lie in Kafka."""
