"""Minari, in both directions."""
