"""Datasets of d3rlpy."""
