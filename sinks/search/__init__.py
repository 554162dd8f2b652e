"""Search sinks: one OpenSearch index per table, in step with its topic."""
