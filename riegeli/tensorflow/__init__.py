"""Riegeli/records files in TensorFlow."""
