"""Loading of published policies: Deep-OPE pickles, D4RL files, SavedModels."""

from __future__ import annotations

import os
from typing import Any

from rlds.evaluation.policies import Policy, SamplerPolicy, mlp_policy
from rlds.evaluation.policy_formats.d4rl import read_d4rl_policy
from rlds.evaluation.policy_formats.deep_ope import DeepOpePolicy, read_deep_ope
from rlds.evaluation.policy_formats.saved_models import SAVED_MODEL, open_saved_model
from rlds.raw_files.untrusted import SourceError
from rlds.sources.source import require_files
from rlds_ecosystem.files.stores import as_path, open_binary

__all__ = ["load_policy"]

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
# D4RL clamped actions to this limit before it computed the recorded log-probabilities.
_D4RL_ACTION_LIMIT = 0.999999


def load_policy(
    path: str | os.PathLike[str] | DeepOpePolicy, *, trusted: bool = False, **options: Any
) -> Policy:
    """Loads a policy of any supported format.

    * A pickle of Deep-OPE for D4RL, which is read without executing code.
    * A file of D4RL from v1 on, or a dataset converted from it: the policy that recorded the data.
    * A SavedModel of Deep-OPE for RL Unplugged. The model needs TensorFlow and only samples
      actions, so a fitted Q-function can evaluate the policy, but importance sampling cannot.

    Args:
      path: The local or remote file or folder; or a record of
        `rlds.evaluation.policy_formats.read_deep_ope_index`.
      trusted: Whether a SavedModel may run, see `rlds.evaluation.policy_formats.open_saved_model`.
      **options: Options of `mlp_policy` for Deep-OPE and D4RL. The default of `clamp` is
        0.999999, as in the log-probabilities of D4RL.

    Raises:
      FileNotFoundError: There is no such file.
      PermissionError: The path is a SavedModel, and `trusted` is not set.
      SourceError: The file is damaged, or has no policy or no standard deviations (Adroit experts
        of D4RL).
    """
    name = path.path if isinstance(path, DeepOpePolicy) else os.fspath(path)
    if (as_path(name) / SAVED_MODEL).exists():
        if options:
            raise TypeError(f"{name!r} is a SavedModel, which takes no option {min(options)!r}")
        model = open_saved_model(name, trusted=trusted)
        return SamplerPolicy(lambda observations, _: model(observations))
    arrays = read_d4rl_policy(name) if _is_d4rl(name) else read_deep_ope(name)
    try:
        return mlp_policy(arrays, **{"clamp": _D4RL_ACTION_LIMIT, **options})
    except (KeyError, ValueError) as error:
        raise SourceError(str(error.args[0]), file=name) from error


def _is_d4rl(path: str) -> bool:
    """True if a path is a D4RL file, or a converted dataset."""
    if as_path(path).is_dir():
        return True
    require_files(path)
    with open_binary(path) as file:
        return file.read(len(_HDF5_SIGNATURE)) == _HDF5_SIGNATURE
