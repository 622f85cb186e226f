"""Datasets of OGBench."""
