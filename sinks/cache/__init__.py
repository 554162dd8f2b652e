"""Keys in Redis or Valkey, kept in step with the log: ``[sinks.NAME] kind = "cache"``. The only importer of `redis`."""
