"""The Spark session and its JVM, and what Spark may read."""
