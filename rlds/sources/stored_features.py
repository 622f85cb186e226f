"""The TFDS features in which fields are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlds_ecosystem.model.fields import Field
from tfds_files.example_scan import direct_encoding
from tfds_files.features import Feature, Features, Image, Tensor

__all__ = ["as_features"]


def as_features(fields: Mapping[str, Any], images_as_png: bool = False, path: str = "") -> Features:
    """Features of fields, or of features in dicts."""
    children: dict[str, Feature] = {}
    for name, field in sorted(fields.items()):
        inner = f"{path}/{name}" if path else name
        if isinstance(field, Feature):
            children[name] = field
        elif isinstance(field, Mapping):
            children[name] = as_features(field, images_as_png, inner)
        elif not isinstance(field, Field):
            raise ValueError(f"{inner}: {field} cannot be copied; name the other fields")
        elif field.encoding or (images_as_png and _is_image(field)):
            children[name] = Image(
                shape=field.shape,
                dtype=field.column_dtype,
                encoding_format=field.encoding or "png",
                doc=field.doc,
            )
        else:
            children[name] = Tensor(
                shape=field.shape,
                dtype=field.column_dtype,
                encoding=direct_encoding(field.shape, field.column_dtype),
                doc=field.doc,
            )
    return Features(features=children)


def _is_image(field: Field) -> bool:
    shape = field.shape
    return field.dtype == np.uint8 and len(shape) == 3 and shape[2] in (1, 3, 4) and 0 not in shape
