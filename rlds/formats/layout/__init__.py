"""Files of any kind, by a description of what their arrays mean."""
