"""Cache sinks: keys in Redis or Valkey in step with the topics. The only package that imports `redis`."""
