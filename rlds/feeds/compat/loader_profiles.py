"""Loader profiles: demands of other projects' loaders on a stored dataset, beyond the RLDS rules.

The profile "octo" has the demands of the loaders of dlimp, Octo and OpenVLA. These loaders read
steps as stored (`tfds.decode.SkipDecoding`), so demands refer to TFDS files, not to decoded values.
This module reads only the two JSON files, without TFDS.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlds import rlds_types
from tfds_files.features import Features, Image, Leaf, Sequence, Tensor, leaves_of, parse_features

__all__ = ["PROFILES", "Demand", "check_location", "read_features", "unmet_demands"]

PROFILES = ("octo",)

# Fields that dlimp adds to steps, so datasets cannot use them.
_RESERVED_FIELDS = ("traj_metadata", "_len", "_traj_index", "_frame_index")
_UNSUPPORTED_ENCODINGS = {"zlib": "compressed (zlib)", "bytes": "stored as bytes"}
_REWRITE_HINT = (
    "rewrite the dataset: rlds.tfds.EpisodeWriter(new_directory, builder.info, "
    "float64='float32', tensor_encoding='none'), with the episodes of rlds.tfds.load"
)


class Demand(NamedTuple):
    """An unmet demand of a loader on a TFDS dataset.

    Attributes:
      text: The problem, and its remedy.
      field: The path of the field, if the demand refers to one.
      hint: A remedy for all findings of the same kind.
    """

    text: str
    field: str | None = None
    hint: str = ""


def read_features(directory: str | os.PathLike[str]) -> Any:
    """Returns the TFDS features of the dataset in a directory, from JSON.

    Raises:
      FileNotFoundError: There is no dataset.
    """
    path = Path(directory) / "features.json"
    if not path.exists():
        raise FileNotFoundError(
            f"{os.fspath(directory)!r} is not a dataset: features.json is missing."
        )
    return json.loads(path.read_text())


def check_location(directory: str | os.PathLike[str]) -> Iterator[Demand]:
    """Yields the unmet demands on the files of a TFDS dataset."""
    directory = Path(directory).absolute()
    info = json.loads((directory / "dataset_info.json").read_text())
    name, version, file_format = info["name"], info["version"], info.get("fileFormat", "tfrecord")
    *_, grandparent, parent, folder = ("", "", *directory.parts)
    if folder != version or name not in (parent, grandparent):
        yield Demand(
            f"the loaders expect the dataset in data_dir/{name}/{version}, but it is in "
            f"{directory}: move it"
        )
    if file_format != "tfrecord":
        yield Demand(
            f"the files have the format {file_format!r}, which tf.data cannot read: copy it with "
            "tfds_builders.convert(FolderSource(directory), file_format='tfrecord', ...)"
        )


def unmet_demands(features: Any) -> Iterator[Demand]:
    """Yields the unmet demands on the features of a TFDS dataset.

    Args:
      features: A `tfds.features.FeaturesDict`, or its JSON form.

    Raises:
      ValueError: The features have no episodes with steps.

    >>> state = {"tensor": {"shape": {}, "dtype": "float32", "encoding": "zlib"}}
    >>> step = {"featuresDict": {"features": {"observation": state}}}
    >>> steps = {"sequence": {"feature": step}}
    >>> for demand in unmet_demands({"featuresDict": {"features": {"steps": steps}}}):
    ...     print(demand.field, "-", demand.text)
    observation - float32 of shape (), compressed (zlib), which the loaders do not decode: write \
it with tensor_encoding='none'
    observation - float32 of shape (): the loaders look for images and states in a dict
    action - missing: the loaders need one vector of numbers in each step
    language_instruction - no text in the steps: Octo can do without (language_key=None), OpenVLA \
cannot; store it
    """
    step = _step_of(features)
    leaves = {leaf.name: leaf for leaf in leaves_of(step)}
    for leaf in leaves.values():
        yield from _check_encoding(leaf)
    for name in _RESERVED_FIELDS:
        if name in step:
            yield Demand("dlimp reserves this name: rename the field", name)
    observation = step.get(rlds_types.OBSERVATION)
    if not isinstance(observation, Features):
        observation_leaf = leaves.get(rlds_types.OBSERVATION)
        problem = "missing" if observation_leaf is None else _describe(observation_leaf)
        yield Demand(
            f"{problem}: the loaders look for images and states in a dict", rlds_types.OBSERVATION
        )
    yield from _check_action(leaves)
    yield from _check_language(leaves)


def _is_text(leaf: Leaf) -> bool:
    return isinstance(leaf.feature, Tensor) and leaf.feature.is_text and not leaf.lengths


def _describe(leaf: Leaf) -> str:
    feature = leaf.feature
    text = isinstance(feature, Tensor) and feature.is_text
    values = "text" if text else f"{feature.dtype} of shape {feature.shape}"
    return f"a sequence of {values}" if leaf.lengths else values


def _check_encoding(leaf: Leaf) -> Iterator[Demand]:
    feature, dtype = leaf.feature, str(leaf.feature.dtype)
    if isinstance(feature, Tensor) and feature.encoding in _UNSUPPORTED_ENCODINGS:
        options = ["float64='float32'"] if dtype == "float64" else []
        options += ["tensor_encoding='none'"] if feature.encoding == "zlib" else []
        remedy, hint = f"write it with {', '.join(options)}", _REWRITE_HINT
        if not options:  # The dtype is, for example, complex.
            remedy, hint = "store it as float32 or as integers, or leave it out", ""
        encoding = _UNSUPPORTED_ENCODINGS[feature.encoding]
        problem = f"{_describe(leaf)}, {encoding}, which the loaders do not decode: {remedy}"
        yield Demand(problem, leaf.name, hint)
    elif isinstance(feature, Image) and dtype == "float32":
        problem = "an image whose bits TFDS stores as colours, which the loaders take for colours"
        remedy = "store a tfds.features.Tensor, or uint16"
        yield Demand(f"{_describe(leaf)}, {problem}: {remedy}", leaf.name)


def _check_action(leaves: Mapping[str, Leaf]) -> Iterator[Demand]:
    need = "the loaders need one vector of numbers in each step"
    action = leaves.get(rlds_types.ACTION)
    paths = [path for path in leaves if path.startswith(f"{rlds_types.ACTION}/")]
    if paths:
        problem = f"the fields {paths}: {need}; join them, or pass a standardize_fn that does"
        yield Demand(problem, rlds_types.ACTION)
    elif action is None:
        yield Demand(f"missing: {need}", rlds_types.ACTION)
    else:
        feature = action.feature
        is_vector = len(feature.shape) == 1 and None not in feature.shape and not action.lengths
        if not is_vector or _is_text(action):
            yield Demand(f"{_describe(action)}: {need}", rlds_types.ACTION)


def _check_language(leaves: Mapping[str, Leaf]) -> Iterator[Demand]:
    texts = [path for path, leaf in leaves.items() if _is_text(leaf) and not leaf.feature.shape]
    if any("/" not in path for path in texts):
        return
    need = "no text in the steps: Octo can do without (language_key=None), OpenVLA cannot; store it"
    if texts:
        need = f"text is in {texts}, where the loaders do not look: pass a standardize_fn, or store"
        need += " it next to the observation"
    yield Demand(need, "language_instruction")


def _step_of(features: Any) -> Features:
    """Returns the features of a step."""
    tree = features.to_json() if hasattr(features, "to_json") else features
    steps = parse_features(tree).get(rlds_types.STEPS)
    step = steps.feature if isinstance(steps, Sequence) else None
    if not isinstance(step, Features):
        raise ValueError(f"these are not features of episodes with steps: {tree!r:.200}")
    return step
