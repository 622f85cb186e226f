"""Trajectories of imitation."""
