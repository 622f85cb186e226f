"""Files of any kind, by a layout that describes their arrays."""
