"""Sidecars of earlier releases: a `tf.train.Example` for each episode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import rlds
import tfds_files
from rlds.sources.episode_fields import COMPLETE, EPISODE_FIELDS, ORIGIN, TRUNCATED
from rlds.sources.sidecar_columns import EPISODE, EPISODES, FILE, FINAL, FLAGS, KEY, STEPS, Row
from rlds.sources.stored_features import as_features
from rlds_ecosystem.model.fields import Field
from tfds_files.features import Dataset, Features, Image, images_as_bytes

__all__ = ["LegacyRows"]

_KEY_FIELD = rlds.metadata.EPISODE_ID
_NUM_STEPS, _FLAGS_FIELD, _FINAL_FIELD, _METADATA = "num_steps", "flags", "final", "metadata"


class LegacyRows:
    """Reads the `tf.train.Example` records of a legacy sidecar as rows of its columns.

    Args:
      steps: The fields of steps in the sidecar.
      final: The fields of the final observation in the sidecar.
      episode: The fields of episodes in the sidecar.
      derived_flags: See `Sidecar.derived_flags`.
    """

    def __init__(
        self,
        steps: Mapping[str, Field],
        final: Mapping[str, Field],
        episode: Mapping[str, Field],
        derived_flags: Callable[[int, bool, bool], Mapping[str, np.ndarray]],
    ) -> None:
        self._derived_flags = derived_flags
        children: dict[str, Any] = {
            **as_features(
                {
                    **EPISODE_FIELDS,
                    _NUM_STEPS: Field(np.int64),
                    rlds.IS_TERMINAL: Field(np.bool_),
                    _FLAGS_FIELD: dict.fromkeys(rlds.STEP_FLAGS, Field(np.bool_, (None,))),
                }
            ),
            _METADATA: _stored(episode),
            _FINAL_FIELD: Dataset(feature=_stored(final)),
            rlds.STEPS: Dataset(feature=_stored(steps)),
        }
        self._decoder = tfds_files.ExampleDecoder(images_as_bytes(Features(features=children)))

    def row(self, data: bytes) -> Row:
        """Reads the record of an episode.

        Raises:
          ValueError: The record is damaged.
        """
        saved = self._decoder.decode(data)
        origin, num_steps = saved[ORIGIN], int(saved[_NUM_STEPS])
        names = (rlds.FINAL_OBSERVATION_KNOWN, rlds.IS_TERMINAL)
        is_known, terminal = (bool(saved[name]) for name in names)
        steps, final = dict(saved.get(rlds.STEPS, {})), saved.get(_FINAL_FIELD, {})
        stored_flags = dict(saved[_FLAGS_FIELD])
        derived_flags = self._derived_flags(num_steps, is_known, terminal)
        if rlds.DISCOUNT in derived_flags:
            column = steps.pop(rlds.DISCOUNT)
            is_derived = np.array_equal(column, derived_flags[rlds.DISCOUNT])
            stored_flags[rlds.DISCOUNT] = column[:0] if is_derived else column
        num_final = next((len(column) for column in final.values()), 0)
        bounds = num_steps, num_final, int(origin["begin"]), int(origin["end"])
        return {
            EPISODES: (*bounds, is_known, terminal, bool(saved[TRUNCATED]), bool(saved[COMPLETE])),
            KEY: [saved[_KEY_FIELD]],
            FILE: [origin["file"]],
            **{FLAGS + name: [column] for name, column in stored_flags.items()},
            **{EPISODE + path: [value] for path, value in saved.get(_METADATA, {}).items()},
            **{FINAL + path: column for path, column in final.items()},
            **{STEPS + path: column for path, column in steps.items()},
        }


def _stored(fields: Mapping[str, Field]) -> Features:
    """Returns the features of stored fields: images for image files, otherwise plain values."""
    images = {
        path: Image(shape=field.shape, dtype=field.column_dtype, encoding_format=field.encoding)
        for path, field in fields.items()
        if field.encoding
    }
    values = {p: as_features({"": field})[""] for p, field in fields.items() if not field.encoding}
    return Features(features={**images, **values})
