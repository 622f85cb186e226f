"""ACT, ALOHA and Mobile ALOHA: a folder of HDF5 files, `episode_0.hdf5` and so on.

    observations/qpos, qvel, effort     T rows; the last rows may be missing
    observations/images/<camera>        T frames, or T files of images
    action                              T rows
    base_action                         T rows: linear and angular velocity of a mobile base
    compress_len                        the sizes of the image files, which are padded

The recorder drops the observation after the last action: an episode has T steps and no final
observation. There are no rewards. A row holds an observation and the action taken on it. For real
robots, the training code of ACT uses the action of the row before; this module does not.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Sequence
from typing import Literal

from etils import epath
from typing_extensions import override

from rlds.formats.hdf5_sidecar import sidecar_digest
from rlds.formats.hdf5_source import (
    ATTRIBUTE_NAMES,
    INSTRUCTION,
    Channels,
    Hdf5Episode,
    Hdf5EpisodesSource,
    Hdf5Table,
)
from rlds.raw_files.hdf5_episodes import EpisodeGroup
from rlds.raw_files.input_files import files_at
from rlds.sources.sidecar import StoredSidecar
from rlds.sources.source import Capabilities, SourceError, SourceInfo
from rlds_ecosystem.files import stores

__all__ = ["INSTRUCTION", "TABLE", "AlohaSource"]

# The folder of the sidecar in earlier releases.
_LEGACY_SIDECAR = "rlds"

_FILE_NAME = re.compile(r"episode_\d+\.(?:hdf5|h5)")
_RATE_HZ = 50.0  # The control rate in Hz.
_ARM = (*("waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate"), "gripper")
_JOINTS = tuple(f"{side}_{joint}" for side in ("left", "right") for joint in _ARM)
_UNITS_DOC = (
    "of the left arm first: rad; grippers from 0, closed, to 1, open, normalized by the constants"
)
TABLE = Hdf5Table(
    steps={"action": "action", "observations": "observation", "base_action": "base_action"},
    actions="action",
    derived=("compress_len",),
    channels={
        "action": Channels(
            _JOINTS,
            doc=f"Target positions of the joints, {_UNITS_DOC} of the leader.",
            kind="absolute",
        ),
        "qpos": Channels(_JOINTS, doc=f"Positions of the joints, {_UNITS_DOC} of the follower."),
        "qvel": Channels(_JOINTS),
        "effort": Channels(_JOINTS),
        "base_action": Channels(
            ("linear_velocity", "angular_velocity"), None, "m/s and rad/s", "velocity"
        ),
    },
)


class AlohaSource(Hdf5EpisodesSource):
    """A folder of `episode_0.hdf5`, ..., as ACT, ALOHA and Mobile ALOHA record them.

    `observations/...` become the observation, and other arrays with a row for each action become
    fields of the steps. Attributes and other arrays are fields of the episode. Image files stay
    unchanged, without the padding. The first readable file defines the fields of all.

    An episode is `truncated`, without a final observation.

    Args:
      path: The folder, or a file.
      colour: The order of the channels in images, which differs between labs and is not in the
        files. The order becomes `Field.names`; pixels stay unchanged.
      instruction: The `language_instruction` of every step.
      joint_names: The names of the joints, if their number is not 14 or their order differs from
        ALOHA (left arm, left gripper, right arm, right gripper).

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: No file can be read.
    """

    table = TABLE
    keeps_attributes = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        colour: Literal["as decoded", "rgb", "bgr"] = "as decoded",
        instruction: str | None = None,
        joint_names: Sequence[str] | None = None,
    ) -> None:
        files = files_at(path, _FILE_NAME.fullmatch)
        if not files:
            raise FileNotFoundError(f"{os.fspath(path)!r} has no files episode_0.hdf5, ...")
        self.colour, self._text, self.has_instruction = colour, instruction, instruction is not None
        self._joint_names = None if joint_names is None else list(joint_names)
        if joint_names is not None:
            self.table = _with_joints(tuple(joint_names))
        self._directory = stores.as_path(path)
        self._set_episodes({"train": [Hdf5Episode(file.stem, file, file.name) for file in files]})

    def stored_file(self, split: str, index: int) -> epath.Path:
        """Returns the file of an episode."""
        return self._episodes[split][index].file

    def _instruction(self, episode: Hdf5Episode, group: EpisodeGroup) -> str:
        del episode, group
        return self._text or ""

    @property
    @override
    def capabilities(self) -> Capabilities:
        return dataclasses.replace(super().capabilities, sidecar=self._sidecar)

    def _sidecar(self) -> StoredSidecar | None:
        if not self._directory.is_dir():
            return None
        digest = None
        with contextlib.suppress(SourceError):  # Reading the episode raises the error.
            digest = sidecar_digest(self._file(self._episodes["train"][0]))
        return StoredSidecar.in_folder(self._directory, _LEGACY_SIDECAR, digest)

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        options = {
            "colour": self.colour,
            "instruction": self._text,
            "joint_names": self._joint_names,
        }
        metadata = {
            "control_frequency_hz": _RATE_HZ,
            "options": options,
            ATTRIBUTE_NAMES: list(self._attributes),
        }
        return SourceInfo(
            description="Episodes of a robot with two arms, recorded by ACT or ALOHA.",
            homepage="https://github.com/tonyzhaozh/act",
            metadata={"aloha": metadata},
            options=options,
            aliases=self.table.aliases,
        )


def _with_joints(names: tuple[str, ...]) -> Hdf5Table:
    """Returns the layout table with other joint names."""
    channels = {
        end: dataclasses.replace(channels, names=names) if channels.names == _JOINTS else channels
        for end, channels in TABLE.channels.items()
    }
    return dataclasses.replace(TABLE, channels=channels)
