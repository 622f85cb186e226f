"""DROID: raw episodes of its labs."""
