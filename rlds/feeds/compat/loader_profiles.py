"""What loaders of other projects demand of a stored dataset, beyond the rules of RLDS.

The profile "octo" is what the loaders of dlimp, Octo and OpenVLA need. They take the steps as they
are stored (`tfds.decode.SkipDecoding`), so it is about the files of TFDS and not about the values
that TFDS reads from them. Of these files only the two in JSON are read here, without TFDS.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlds import rlds_types

__all__ = ["PROFILES", "Demand", "check_place", "read_features", "unmet_demands"]

PROFILES = ("octo",)

# What dlimp adds to the fields of a step.
_TAKEN = ("traj_metadata", "_len", "_traj_index", "_frame_index")
_NOT_DECODED = {"zlib": "compressed (zlib)", "bytes": "stored as bytes"}
_TEXT_TYPES = ("string", "object", "str")
_WRITE_ANEW = (
    "rewrite the dataset: rlds.tfds.EpisodeWriter(new_directory, builder.info, "
    "float64='float32', tensor_encoding='none'), with the episodes of rlds.tfds.load"
)


class Demand(NamedTuple):
    """A demand that is not met.

    Attributes:
      what: What there is, and what to do about it.
      field: The path of the field, if it is about one.
      hint: What helps against all of its kind.
    """

    what: str
    field: str | None = None
    hint: str = ""


def read_features(directory: str | os.PathLike[str]) -> Any:
    """Returns the features of the dataset in a directory, as TFDS writes them to JSON.

    Raises:
      FileNotFoundError: There is no dataset.
    """
    path = Path(directory) / "features.json"
    if not path.exists():
        raise FileNotFoundError(
            f"{os.fspath(directory)!r} is not a dataset: features.json is missing."
        )
    return json.loads(path.read_text())


def check_place(directory: str | os.PathLike[str]) -> Iterator[Demand]:
    """Yields the demands on the files of a dataset that are not met."""
    directory = Path(directory).absolute()
    info = json.loads((directory / "dataset_info.json").read_text())
    name, version, file_format = info["name"], info["version"], info.get("fileFormat", "tfrecord")
    *_, above, parent, own = ("", "", *directory.parts)
    if own != version or name not in (parent, above):
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
    """Yields the demands on the features of a dataset that are not met.

    Args:
      features: A `tfds.features.FeaturesDict`, or what TFDS writes of it to JSON.

    Raises:
      ValueError: These are no features of episodes with steps.

    >>> state = {"tensor": {"shape": {}, "dtype": "float32", "encoding": "zlib"}}
    >>> step = {"featuresDict": {"features": {"observation": state}}}
    >>> steps = {"sequence": {"feature": step}}
    >>> for demand in unmet_demands({"featuresDict": {"features": {"steps": steps}}}):
    ...     print(demand.field, "-", demand.what)
    observation - float32 of shape (), compressed (zlib), which the loaders do not decode: write \
it with tensor_encoding='none'
    observation - float32 of shape (): the loaders look for images and states in a dict
    action - missing: the loaders need one vector of numbers in each step
    language_instruction - no text in the steps: Octo can do without (language_key=None), OpenVLA \
cannot; store it
    """
    step = _step(features)
    leaves = {leaf.path: leaf for leaf in _leaves(step, "")}
    for leaf in leaves.values():
        yield from _unreadable(leaf)
    for name in _TAKEN:
        if name in step:
            yield Demand("dlimp uses this name itself: rename the field", name)
    observation = step.get(rlds_types.OBSERVATION)
    if observation is None or _children(observation) is None:
        found = "missing" if observation is None else str(leaves[rlds_types.OBSERVATION])
        yield Demand(
            f"{found}: the loaders look for images and states in a dict", rlds_types.OBSERVATION
        )
    yield from _check_action(leaves)
    yield from _check_language(leaves)


class _Leaf(NamedTuple):
    """A feature without others in it."""

    path: str
    kind: str
    dtype: str
    shape: tuple[int | None, ...]
    encoding: str

    @property
    def is_text(self) -> bool:
        """Whether it is a string."""
        return self.kind == "text" or (self.kind == "tensor" and self.dtype in _TEXT_TYPES)

    def __str__(self) -> str:
        return "text" if self.is_text else f"{self.dtype or self.kind} of shape {self.shape}"


def _unreadable(leaf: _Leaf) -> Iterator[Demand]:
    if leaf.kind == "tensor" and leaf.encoding in _NOT_DECODED:
        options = ["float64='float32'"] if leaf.dtype == "float64" else []
        options += ["tensor_encoding='none'"] if leaf.encoding == "zlib" else []
        what_to_do, hint = f"write it with {', '.join(options)}", _WRITE_ANEW
        if not options:  # Complex numbers and the like.
            what_to_do, hint = "store it as float32 or as integers, or leave it out", ""
        how = _NOT_DECODED[leaf.encoding]
        what = f"{leaf}, {how}, which the loaders do not decode: {what_to_do}"
        yield Demand(what, leaf.path, hint)
    elif leaf.kind == "image" and leaf.dtype == "float32":
        what = "an image whose bits TFDS stores as colours, which the loaders take for colours"
        yield Demand(f"{leaf}, {what}: store a tfds.features.Tensor, or uint16", leaf.path)


def _check_action(leaves: Mapping[str, _Leaf]) -> Iterator[Demand]:
    need = "the loaders need one vector of numbers in each step"
    action = leaves.get(rlds_types.ACTION)
    parts = [path for path in leaves if path.startswith(f"{rlds_types.ACTION}/")]
    if parts:
        what = f"the fields {parts}: {need}; join them, or pass a standardize_fn that does"
        yield Demand(what, rlds_types.ACTION)
    elif action is None:
        yield Demand(f"missing: {need}", rlds_types.ACTION)
    elif (
        action.kind != "tensor" or action.is_text or len(action.shape) != 1 or None in action.shape
    ):
        yield Demand(f"{action}: {need}", rlds_types.ACTION)


def _check_language(leaves: Mapping[str, _Leaf]) -> Iterator[Demand]:
    texts = [path for path, leaf in leaves.items() if leaf.is_text and not leaf.shape]
    if any("/" not in path for path in texts):
        return
    what = "no text in the steps: Octo can do without (language_key=None), OpenVLA cannot; store it"
    if texts:
        what = f"text is in {texts}, where the loaders do not look: pass a standardize_fn, or store"
        what += " it next to the observation"
    yield Demand(what, "language_instruction")


def _step(features: Any) -> Mapping[str, Any]:
    """The features of a step by name, in the form of JSON."""
    if hasattr(features, "to_json"):
        features = features.to_json()
    if isinstance(features, Mapping) and "content" in features:  # As `to_json` has it.
        features = {"featuresDict": features["content"]}
    try:
        steps = features["featuresDict"]["features"][rlds_types.STEPS]
        step: Mapping[str, Any] = steps["sequence"]["feature"]["featuresDict"]["features"]
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"these are not features of episodes with steps: {features!r:.200}"
        ) from error
    return step


def _children(feature: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if "featuresDict" not in feature:
        return None
    children: Mapping[str, Any] = feature["featuresDict"].get("features", {})
    return children


def _leaves(features: Mapping[str, Any], path: str) -> Iterator[_Leaf]:
    for name, feature in sorted(features.items()):
        here = f"{path}/{name}" if path else name
        children = _children(feature)
        if children is not None:
            yield from _leaves(children, here)
            continue
        kind, content = next((k, v) for k, v in feature.items() if isinstance(v, Mapping))
        sizes = [int(size) for size in content.get("shape", {}).get("dimensions", ())]
        shape = tuple(None if size < 0 else size for size in sizes)
        yield _Leaf(here, kind, content.get("dtype", ""), shape, content.get("encoding", "none"))
