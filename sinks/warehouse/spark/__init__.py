"""The Spark session and its JVM, and the limits of what Spark may read."""
