"""Google's Atari DQN Replay."""
