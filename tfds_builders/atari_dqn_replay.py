"""The builder of Google's Atari DQN Replay."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import tensorflow_datasets as tfds

from rlds.formats.atari_dqn_replay.source import BUCKET, GAMES, REPLAY_LOGS, AtariDqnReplaySource
from tfds_builders.builder import SourceBuilder

__all__ = ["AtariDqnReplayConfig", "RldsAtariDqnReplay"]


@dataclasses.dataclass
class AtariDqnReplayConfig(tfds.core.BuilderConfig):  # type: ignore[misc]
    """Which run is converted.

    Attributes:
      directory: Its folder, below the one that all is published in.
    """

    directory: str = ""


class RldsAtariDqnReplay(SourceBuilder):
    """Episodes of Google's Atari DQN Replay; see `rlds.formats.atari_dqn_replay.source`.

    There is a config for each run, such as `Pong_run_1`. The default, `files`, is for any other
    folders, and needs a `path`.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    BUILDER_CONFIGS: ClassVar[list[AtariDqnReplayConfig]] = [
        AtariDqnReplayConfig(name="files", description="Runs that are given by their path."),
        *(
            AtariDqnReplayConfig(
                name=f"{game}_run_{run}",
                description=f"Run {run} of {game}, from {BUCKET}/{game}/{run}/{REPLAY_LOGS}.",
                directory=f"{game}/{run}",
            )
            for game in GAMES
            for run in range(1, 6)
        ),
    ]
    source_class = AtariDqnReplaySource

    def raw_name(self) -> str:
        """Returns the folder of the run below the `manual_dir`, as it is published."""
        return str(self.builder_config.directory)

    def url(self) -> str | None:
        """Returns where the run is published."""
        directory = self.builder_config.directory
        return f"{BUCKET}/{directory}" if directory else None
