"""D4RL and d4rl-pybullet, in both directions."""
