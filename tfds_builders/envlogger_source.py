"""EnvLogger logs, with TFDS features of your own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow_datasets as tfds
from tensorflow_datasets.rlds import rlds_base

import rlds
from rlds.formats.logs import source as logs_source
from rlds.formats.logs.recorded_logs import Logs
from rlds.sources.episode_fields import RESERVED
from rlds.tfds.features import (
    TensorStorage,
    fields_of_features,
    lossless,
    lossless_config,
)
from tfds_builders.features import feature_of

__all__ = ["EnvLoggerSource"]

_FIELDS_WITH_SPEC = (rlds.OBSERVATION, rlds.ACTION, rlds.REWARD, rlds.DISCOUNT)


class EnvLoggerSource(logs_source.EnvLoggerSource):
    """EnvLogger logs: `rlds.formats.logs.source.EnvLoggerSource`, with the choices of a dataset.

    Args:
      logs: See the base class.
      config: Features to use instead of those that are found; fields of it that are None are found
        as without it.
      metadata: See the base class.
      episode_metadata_defaults: See the base class.
      images_as_png: Whether uint8 arrays of shape `(height, width, 1 | 3 | 4)` are stored as PNG.
      float64: Whether the float64 of steps is kept ("bytes") or rounded ("float32"), see `convert`.
        If None, it is kept, with a warning if the config has a feature that would have rounded it.
        "float32" is needed here, too, where the config has a float32 feature for float64.

    Raises:
      ValueError: TFDS cannot hold a dtype; or see the base class.
    """

    def __init__(
        self,
        logs: Logs,
        *,
        config: rlds_base.DatasetConfig | None = None,
        metadata: Mapping[str, Any] | None = None,
        episode_metadata_defaults: Mapping[str, Any] | None = None,
        images_as_png: bool = True,
        float64: str | None = None,
    ) -> None:
        self._storage = TensorStorage(float64)
        self._rounds = self._storage.rounds
        self._config = lossless_config(
            config or rlds_base.DatasetConfig(name=""),
            self._storage,
            argument="config",
            stacklevel=2,
        )
        self.images_as_png = images_as_png
        self.homepage, self.citation = self._config.homepage or "", self._config.citation or ""
        super().__init__(
            logs, metadata=metadata, episode_metadata_defaults=episode_metadata_defaults
        )

    def _find_step_fields(self, specs: Mapping[str, Any]) -> dict[str, Any]:
        given = self._given()
        found = self._features(
            super()._find_step_fields({name: specs[name] for name in specs if name not in given})
        )
        features = {name: {**given, **found}[name] for name in specs if name in {**given, **found}}
        if self._config.step_metadata_info is not None:
            features = {name: features[name] for name in _FIELDS_WITH_SPEC if name in features}
            features.update(self._config.step_metadata_info)
        return dict(lossless(tfds.features.FeaturesDict(features), "steps", self._storage).items())

    def _find_episode_fields(self, specs: Mapping[str, Any]) -> dict[str, Any]:
        given = self._config.episode_metadata_info
        if given is None:
            return self._features(super()._find_episode_fields(specs))
        for reserved in RESERVED:
            if reserved in given:
                raise ValueError(
                    f"config.episode_metadata_info: the name {reserved!r} is taken by the "
                    f"dataset itself. (A recorded {reserved!r} is kept as 'recorded_{reserved}'.)"
                )
        return dict(given)

    def _expected(self, fields: dict[str, Any]) -> dict[str, Any]:
        return fields_of_features(tfds.features.FeaturesDict(fields))

    def _features(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {
            name: feature_of(field, images_as_png=self.images_as_png, path=name)
            for name, field in fields.items()
        }

    def _is_given(self, name: str) -> bool:
        return name in self._given()

    def _given(self) -> dict[str, Any]:
        """Returns the features that the config has for fields with a spec."""
        features = {
            rlds.OBSERVATION: self._config.observation_info,
            rlds.ACTION: self._config.action_info,
            rlds.REWARD: self._config.reward_info,
            rlds.DISCOUNT: self._config.discount_info,
        }
        return {name: feature for name, feature in features.items() if feature is not None}
