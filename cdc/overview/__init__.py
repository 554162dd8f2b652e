"""What the live page and `cdc top` show: the flow as a picture, an hour of history, and lists for the pages."""
