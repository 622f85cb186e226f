"""CALVIN, as it is downloaded."""
