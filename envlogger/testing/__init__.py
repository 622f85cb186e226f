"""Small environments to try and test recording with."""
