"""RL Unplugged: Atari, DMLab, the control suite, locomotion, real-world RL."""
