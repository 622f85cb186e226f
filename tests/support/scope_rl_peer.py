"""The estimates of scope-rl, which runs where NumPy, SciPy and scikit-learn are.

    python scope_rl_peer.py data.npz

prints those of the arrays in a file, as JSON. `EVALUATION_PYTHON` names a Python that has it.
"""

import importlib.metadata
import json
import os
import subprocess
import sys
import types

import numpy as np

PYTHON = os.environ.get("EVALUATION_PYTHON", "")
NAMES = {
    "IS": "TrajectoryWiseImportanceSampling",
    "WIS": "SelfNormalizedTIS",
    "per-decision IS": "PerDecisionImportanceSampling",
    "per-decision WIS": "SelfNormalizedPDIS",
    "DR": "DoublyRobust",
    "WDR": "SelfNormalizedDR",
}


def estimators():
    """The estimators, by our names.

    The package imports PyTorch, d3rlpy and gym for other parts of it: these are passed over.
    """
    files = importlib.metadata.files("scope-rl")
    home = next(file for file in files if file.name == "basic_estimators.py").locate().parents[1]
    for name in ("gym", "d3rlpy", "d3rlpy.preprocessing", "scope_rl.ope", "scope_rl.ope.discrete"):
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["gym"].Env = sys.modules["d3rlpy.preprocessing"].ActionScaler = object
    sys.modules["scope_rl.ope"].__path__ = [str(home)]
    sys.modules["scope_rl.ope.discrete"].__path__ = [str(home / "discrete")]
    module = importlib.import_module("scope_rl.ope.discrete.basic_estimators")
    return {name: getattr(module, theirs)() for name, theirs in NAMES.items()}


def arguments(path):
    """What the estimators take."""
    with np.load(path) as arrays:
        found = dict(arrays)
    return {
        **found,
        "step_per_trajectory": int(found["step_per_trajectory"]),
        "gamma": float(found["gamma"]),
    }


def answers(**arrays):
    """The estimates of scope-rl, from the Python that has it."""
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        np.savez(file, **arrays)
        file.flush()
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [PYTHON, __file__, file.name], env=environment, capture_output=True, text=True
        )
    assert not done.returncode, done.stderr[-4000:]
    return json.loads(done.stdout)


if __name__ == "__main__":
    given = arguments(sys.argv[1])
    found = {name: one.estimate_policy_value(**given) for name, one in estimators().items()}
    print(json.dumps(found))
