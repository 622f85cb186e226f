"""Replay buffers in Zarr, as Diffusion Policy and UMI have them."""
