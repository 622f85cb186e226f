"""Builders for EnvLogger logs that are named by a path, and for those that were published."""

from __future__ import annotations

from typing import ClassVar

import tensorflow_datasets as tfds
from etils import epath
from tensorflow_datasets.core.download.checksums import load_url_infos

from tfds_builders.builder import SourceBuilder
from tfds_builders.envlogger_source import EnvLoggerSource

__all__ = ["RldsEnvlogger", "RldsPickPlaceCan", "RldsSacLocomotion"]

_URL = "https://storage.googleapis.com/rlds_external_data_release/"
_SUFFIX = ".tar.gz"
_CHECKSUMS = load_url_infos(epath.Path(__file__).parent / "published_logs.tsv")


class RldsEnvlogger(SourceBuilder):
    """EnvLogger logs: the `path` is a directory (every log in and below it counts), or an archive.

    See `EnvLoggerSource`, and `build_from_logs` for more options.
    """

    VERSION = tfds.core.Version("1.0.0")
    SHUFFLE = False
    EXTRACT = True
    source_class = EnvLoggerSource


class _PublishedLogs(RldsEnvlogger, skip_registration=True):  # type: ignore[call-arg]
    """Logs that were published as archives, one for each config."""

    ARCHIVES: ClassVar[dict[str, str]]
    url_infos = _CHECKSUMS

    def url(self) -> str | None:
        """Returns where the archive was published."""
        return f"{_URL}{self.ARCHIVES[self.builder_config.name]}{_SUFFIX}"


class RldsPickPlaceCan(_PublishedLogs):
    """A robot arm places a can (robosuite), driven by people and by an agent (SAC).

    The datasets of the RLDS paper: 50 episodes of people, recorded with RLDS Creator, with and
    without images, and 200 of an agent, of 400 steps each. The annotation `tag:placed` marks when
    the can is in its place.
    """

    ARCHIVES: ClassVar[dict[str, str]] = {
        "human_dc29b40a": "rlds_robosuite_panda_pick_place_can_human_state_only_dc29b40a",
        "human_images_dc29b40a": "rlds_robosuite_panda_pick_place_can_human_dc29b40a",
        "synthetic_stochastic_sac_afe13968": (
            "rlds_robosuite_panda_pick_place_can_synthetic_stochastic_sac_afe13968"
        ),
    }
    BUILDER_CONFIGS: ClassVar[list[tfds.core.BuilderConfig]] = [
        tfds.core.BuilderConfig(name=name, description=f"The archive {archive}.")
        for name, archive in ARCHIVES.items()
    ]


class RldsSacLocomotion(_PublishedLogs):
    """Roll-outs of SAC agents in MuJoCo's locomotion tasks (Orsini et al., 2021)."""

    ARCHIVES: ClassVar[dict[str, str]] = {
        name: name
        for name in (
            "ant_sac_1M_single_policy_stochastic",
            "halfcheetah_sac_1M_single_policy_stochastic",
            "hopper_sac_1M_single_policy_stochastic",
            "humanoid_sac_15M_single_policy_stochastic",
            "walker2d_sac_1M_single_policy_stochastic",
        )
    }
    BUILDER_CONFIGS: ClassVar[list[tfds.core.BuilderConfig]] = [
        tfds.core.BuilderConfig(name=name, description=f"The archive {name}.") for name in ARCHIVES
    ]
