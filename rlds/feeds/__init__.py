"""Batches of recorded data for PyTorch, JAX and NumPy, without TensorFlow."""
