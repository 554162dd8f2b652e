"""Search: an OpenSearch index for each table, in step with its topic."""
