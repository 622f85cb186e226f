"""RL Unplugged: Atari, DMLab, the control suite, locomotion, real-world RL, bsuite.

Two products hold whole episodes and pieces of them: the builders of the latter have names of their
own (`..._transitions`, `..._windows`), and all of bsuite is pieces.
"""
