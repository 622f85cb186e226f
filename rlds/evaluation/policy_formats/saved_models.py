"""Reader of the Deep-OPE policies for RL Unplugged: TensorFlow SavedModels that sample actions."""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np

from rlds.raw_files.untrusted import SourceError
from rlds_ecosystem import missing_tensorflow
from rlds_ecosystem.files.stores import as_path
from rlds_ecosystem.model.nests import map_named_leaves, named_leaves

__all__ = ["SAVED_MODEL", "SavedModel", "open_saved_model"]

# The file that identifies a SavedModel folder.
SAVED_MODEL = "saved_model.pb"
# Some policies take a recurrent state, which is empty in all of them.
_NO_STATE = ((),)
# The number of observations in a batch of the model.
_BLOCK_ROWS = 1 << 12


class SavedModel:
    """A policy that samples actions with a TensorFlow model, without a seed.

    Args:
      model: The result of `tf.saved_model.load`.
      path: The path of the model, for errors.
    """

    def __init__(self, model: Any, path: str) -> None:
        self._model, self._path = model, path
        # `is_recurrent` of the index does not match the signatures.
        self._has_state = hasattr(model, "initial_state")

    def __call__(self, observations: Any) -> np.ndarray:
        """Returns an action for each observation.

        Args:
          observations: An array with a leading axis, or dicts of such arrays.

        Raises:
          ValueError: The model takes other observations.
        """
        length = len(next(leaf for _, leaf in named_leaves(observations)))
        blocks = [
            self._sample_block(observations, slice(begin, begin + _BLOCK_ROWS))
            for begin in range(0, max(length, 1), _BLOCK_ROWS)
        ]
        return np.concatenate(blocks)

    def _sample_block(self, observations: Any, rows: slice) -> np.ndarray:
        tf = _import_tensorflow()
        block = map_named_leaves(lambda _, leaf: tf.constant(leaf[rows]), observations)
        try:
            actions = self._model(block, _NO_STATE)[0] if self._has_state else self._model(block)
        except (TypeError, ValueError) as error:
            received = {
                path or "observation": (leaf.dtype.name, *leaf.shape[1:])
                for path, leaf in named_leaves(block)
            }
            raise ValueError(
                f"{self._path}: the policy does not accept these observations: {received} "
                f"(TensorFlow: {error})"
            ) from error
        return np.asarray(actions)


def open_saved_model(path: str | os.PathLike[str], *, trusted: bool = False) -> SavedModel:
    """Opens a Deep-OPE policy for RL Unplugged.

    Args:
      path: The folder with `saved_model.pb`.
      trusted: True if you trust the author. A SavedModel is a program, which may read and write all
        your files when it samples actions.

    Raises:
      FileNotFoundError: There is no SavedModel.
      ImportError: TensorFlow is not installed.
      PermissionError: `trusted` is not set.
      SourceError: TensorFlow cannot load the model, or the model is not a policy.
    """
    name = os.fspath(path)
    if not (as_path(path) / SAVED_MODEL).exists():
        raise FileNotFoundError(
            f"{name!r} has no {SAVED_MODEL}, expected the folder of a SavedModel."
        )
    if not trusted:
        raise PermissionError(
            f"{name!r} is a SavedModel, a program that may read and write all your files. If you "
            "trust its author, pass trusted=True."
        )
    try:
        model = _import_tensorflow().saved_model.load(name)
    except (MemoryError, ImportError):
        raise
    except Exception as error:
        reason = f"TensorFlow cannot load it: {type(error).__name__}: {error!s:.500}"
        raise SourceError(reason, file=name) from error
    if not callable(model):
        raise SourceError("expected a policy, got a SavedModel that cannot be called", file=name)
    return SavedModel(model, name)


def _import_tensorflow() -> Any:
    error = missing_tensorflow("rlds.evaluation.policy_formats.open_saved_model")
    if error is not None:
        raise error
    return importlib.import_module("tensorflow")
