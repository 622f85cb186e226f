"""The logs of RLDS Creator."""
