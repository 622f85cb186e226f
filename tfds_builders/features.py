"""The TFDS features of the dataset that a source becomes.

They keep values without loss, see `rlds.tfds.features`.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from etils import epath

import rlds
from rlds.raw_files.untrusted import source_errors
from rlds.sources.episode_fields import EPISODE_FIELDS, RESERVED
from rlds.sources.source import Source, SourceError, StoredSource, files_of
from rlds.tfds.features import (
    EXACT,
    TensorStorage,
    check_readable,
    encoding_of,
    lossless,
)
from rlds_ecosystem.model.fields import Field

__all__ = ["feature_of", "features_of"]

# What of an array of bytes is an image.
_NUM_CHANNELS = (1, 3, 4)
# Where features.json says which class a feature is of, in newer and in older files.
_CLASS_KEYS = {"pythonClassName", "python_class_name", "type"}
_FEATURES = "tensorflow_datasets.core.features."


def feature_of(field: Any, *, images_as_png: bool = True, path: str = "") -> Any:
    """Returns the TFDS feature that holds, without loss, what a field of a source does.

    Strings become `Text` if they are scalar and known to be text, string tensors otherwise.

    Args:
      field: A field, a dict of fields, or a dtype for a field of scalars. A TFDS feature stays what
        it is.
      images_as_png: Whether uint8 arrays of shape `(height, width, 1 | 3 | 4)` become PNG images.
      path: Name of the field in error messages.

    Raises:
      ValueError: If TFDS has no way to hold a dtype.

    >>> feature_of({"position": Field(np.float32, (3,))})
    FeaturesDict({
        'position': Tensor(shape=(3,), dtype=float32),
    })
    """
    if isinstance(field, Mapping) and not isinstance(field, tfds.features.FeaturesDict):
        children = {
            name: feature_of(child, images_as_png=images_as_png, path=f"{path}/{name}")
            for name, child in field.items()
        }
        return tfds.features.FeaturesDict(children)
    if isinstance(field, tfds.features.FeatureConnector):
        return field
    if not isinstance(field, Field):
        field = Field(field)
    shape, dtype = field.shape, field.column_dtype
    if field.encoding:
        return tfds.features.Image(
            shape=shape, dtype=dtype, encoding_format=field.encoding, doc=field.doc or None
        )
    if field.dtype.kind == "U" and shape == ():
        return tfds.features.Text(doc=field.doc or None)
    is_image = dtype == np.uint8 and len(shape) == 3 and shape[2] in _NUM_CHANNELS
    if is_image and images_as_png and 0 not in shape:
        return tfds.features.Image(shape=shape, encoding_format="png", doc=field.doc or None)
    encoding = encoding_of(shape, dtype, path)
    return tfds.features.Tensor(shape=shape, dtype=dtype, encoding=encoding, doc=field.doc or None)


def features_of(source: Source, storage: TensorStorage = EXACT) -> tfds.features.FeaturesDict:
    """Returns the features of the dataset that a source becomes.

    Args:
      source: The source.
      storage: How its steps are stored.

    Raises:
      SourceError: The source has a field of a name that the dataset itself uses, or one that TFDS
        cannot hold without loss.
      ValueError: The episodes are copied, but are to be stored in another way.
    """
    if isinstance(source, StoredSource):
        if storage.rounds or (storage.tensor_encoding, storage.png_level) != (None, None):
            raise ValueError(
                f"{type(source).__name__}: the episodes are copied as they are stored, so float64, "
                "tensor_encoding and png_level cannot change them. Read them with rlds.tfds.load, "
                "and write them with rlds.tfds.EpisodeWriter, which has these arguments."
            )
        with source_errors(source.directory):
            _check_classes(source.directory / "features.json")
            return tfds.features.FeaturesDict.from_config(source.directory)
    steps, episode = dict(source.step_fields()), dict(source.episode_fields())
    for taken, fields in ((rlds.STEP_FLAGS, steps), (RESERVED, episode)):
        for name in taken:
            if name in fields:
                raise SourceError(
                    f"{type(source).__name__}: the name {name!r} is reserved; rename the field",
                    file=files_of(source),
                )
    steps.update(dict.fromkeys(rlds.STEP_FLAGS, np.bool_))
    try:
        step_features = lossless(
            feature_of(steps, images_as_png=source.images_as_png, path=rlds.STEPS),
            rlds.STEPS,
            storage,
        )
        others = lossless(feature_of({**EPISODE_FIELDS, **episode}, path="episode"), "episode")
        features = tfds.features.FeaturesDict(
            {rlds.STEPS: tfds.features.Dataset(step_features), **dict(others.items())}
        )
        check_readable(features, f"{type(source).__name__}: ")
    except ValueError as error:  # The fields, too, may be those that a file names.
        raise SourceError(str(error), file=files_of(source)) from error
    return features


def _check_classes(file: epath.Path) -> None:
    """Checks that features are of classes of TFDS, or of modules that are there already.

    TFDS imports whatever module a file names.
    """
    nodes = [json.loads(file.read_text())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            for key in _CLASS_KEYS & node.keys():
                _check_class(node[key], file)
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node
        elif isinstance(node, str) and node.lstrip().startswith(("{", "[")):  # JSON in JSON.
            with contextlib.suppress(ValueError):
                nodes.append(json.loads(node))


def _check_class(name: Any, file: epath.Path) -> None:
    if not isinstance(name, str) or name.startswith(_FEATURES):  # A field may be called "type".
        return
    if name.rpartition(".")[0] not in sys.modules:
        raise SourceError(
            f"{name!r} is not a feature of TFDS; import its module first, if you trust it",
            file=file,
        )
