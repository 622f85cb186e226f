"""Replay buffers of Stable-Baselines3."""
