"""From row messages to key and value bytes. Pure."""
