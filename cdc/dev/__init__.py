"""`cdc dev`: local servers, capture and all sinks, which run until Ctrl-C and leave nothing behind."""
