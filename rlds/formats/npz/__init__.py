"""Folders of `.npz` files, an episode each."""
