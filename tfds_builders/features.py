"""The TFDS features of the dataset that is converted from a source.

The features keep values without loss, see `rlds.formats.tfds.features`.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from typing import Any

import tensorflow_datasets as tfds
from etils import epath

from rlds.formats.tfds import features as stored_features
from rlds.formats.tfds.features import EXACT, TensorStorage
from rlds.raw_files.untrusted import source_errors
from rlds.sources.source import AnySource, SourceError
from rlds_ecosystem.model.fields import Field

__all__ = ["feature_of", "features_of"]

# The keys of the class of a feature in features.json, in newer and older files.
_CLASS_KEYS = {"pythonClassName", "python_class_name", "type"}
_TFDS_MODULE = "tensorflow_datasets.core.features."


def feature_of(field: Any, *, images_as_png: bool = True, path: str = "") -> Any:
    """Returns the TFDS feature that holds the values of a step field without loss.

    Scalar strings that are declared as text become `Text`, other strings tensors.

    Args:
      field: A field, a dict of fields, or a dtype for a field of scalars. A TFDS feature stays
        unchanged.
      images_as_png: Whether uint8 arrays of shape `(height, width, 1 | 3 | 4)` become PNG images.
      path: Name of the field in error messages.

    Raises:
      ValueError: TFDS cannot hold a dtype.

    >>> feature_of({"position": Field("float32", (3,))})
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
    field = field if isinstance(field, Field) else Field(field)
    feature = stored_features.feature_of(field, path, EXACT, as_png=images_as_png)
    return tfds.features.FeatureConnector.from_json(feature.to_json())


def features_of(source: AnySource, storage: TensorStorage = EXACT) -> tfds.features.FeaturesDict:
    """Returns the features of the dataset that is converted from a source.

    Args:
      source: The source.
      storage: The storage of its steps.

    Raises:
      SourceError: The source has a field with a name of the dataset's own, or a field that TFDS
        cannot hold without loss.
    """
    if (examples := source.capabilities.examples) is not None:
        with source_errors(examples.directory):
            _check_classes(examples.directory / "features.json")
            return tfds.features.FeaturesDict.from_config(examples.directory)
    features = stored_features.features_of(source, storage)
    return tfds.features.FeaturesDict.from_json(features.to_json())


def _check_classes(file: epath.Path) -> None:
    """Checks that the classes of features are in TFDS, or in modules that are loaded.

    TFDS imports any module that a file names.
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
        elif isinstance(node, str) and node.lstrip().startswith(("{", "[")):  # Text may hold JSON.
            with contextlib.suppress(ValueError):
                nodes.append(json.loads(node))


def _check_class(name: Any, file: epath.Path) -> None:
    if not isinstance(name, str) or name.startswith(_TFDS_MODULE):  # A field may be called "type".
        return
    if name.rpartition(".")[0] not in sys.modules:
        raise SourceError(
            f"{name!r} is not a feature of TFDS; import its module first, if you trust it",
            file=file,
        )
