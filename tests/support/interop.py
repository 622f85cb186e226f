"""The number and the seed of the random cases of interop tests.

`INTEROP_CASES` in the environment is the number, 200 by default; `INTEROP_SEED` is the seed of the
first case, drawn by default, so that every run tries different cases. A run prints it, and each
failure names the seed of its case.
"""

import os
import random

NUM_CASES = int(os.environ.get("INTEROP_CASES", "200"))
FIRST_SEED = int(os.environ.get("INTEROP_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)


def seeds():
    """The seeds of the cases of a test."""
    print(f"INTEROP_CASES={NUM_CASES} INTEROP_SEED={FIRST_SEED}")
    return range(FIRST_SEED, FIRST_SEED + NUM_CASES)
