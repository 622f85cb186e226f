"""Datasets of LeRobot."""
