"""ManiSkill: trajectories in HDF5, and a JSON file that describes them."""
