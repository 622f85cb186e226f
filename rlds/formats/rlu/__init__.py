"""RL Unplugged: Atari, DMLab, the control suite, locomotion, real-world RL, bsuite.

Some products hold whole episodes, other products pieces of episodes: transitions or short windows.
Builders of pieces end in `_transitions` or `_windows`. All data of bsuite are pieces.
"""
