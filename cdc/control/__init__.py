"""Actions of operators, for the command line and for HTTP: performed by one implementation, and recorded."""
