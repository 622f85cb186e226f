"""ACT, ALOHA and Mobile ALOHA: a folder of HDF5 files, `episode_0.hdf5` and so on.

    observations/qpos, qvel, effort     T rows, of which the last ones may be missing
    observations/images/<camera>        T frames, or T files of images
    action                              T rows
    base_action                         T rows: how fast a mobile base is to drive and to turn
    compress_len                        how long the files of images are, which are padded

The recorder throws the observation away that follows the last action, so an episode has T steps and
its final observation is not known. There are no rewards. Rows hold the observation and the action
that was taken on it; what the training code of ACT does with real robots, which is to take the
action of the row before, is not done here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from etils import epath

import rlds
from rlds.formats.hdf5_source import Column, Hdf5EpisodesSource, of_colour
from rlds.raw_files.hdf5_access import Hdf5File
from rlds.raw_files.hdf5_episodes import EpisodeGroup
from rlds.raw_files.input_files import natural_order, present
from rlds.sources.sidecar import StoredSidecar
from rlds.sources.source import require_files
from rlds_ecosystem import stores
from rlds_ecosystem.nests import root_of

__all__ = ["ACTION", "ASIDE", "COMPRESS_LEN", "INSTRUCTION", "KEY", "METADATA_KEY", "AlohaSource"]

# Under this name, the metadata of a dataset says how the files were stored.
METADATA_KEY = "aloha"
ACTION, OBSERVATIONS, COMPRESS_LEN = "action", "observations", "compress_len"
INSTRUCTION = "language_instruction"
# The folder for what the format has no place for.
ASIDE = "rlds"

# The keys of episodes: the names of their files.
KEY = re.compile(r"episode_\d+")
_FILE = re.compile(rf"{KEY.pattern}\.(?:hdf5|h5)")
_RATE = 50.0  # Hz
_ARM = (
    *("waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate"),
    "gripper",
)
_JOINTS = tuple(f"{side}_{joint}" for side in ("left", "right") for joint in _ARM)
_OF_JOINTS = (ACTION, *(f"{OBSERVATIONS}/{name}" for name in ("qpos", "qvel", "effort")))
_DOCS = {
    ACTION: "Positions that the joints are to reach, of the left arm first: rad; grippers from 0, "
    "closed, to 1, open, normalized by the constants of the leader.",
    f"{OBSERVATIONS}/qpos": "Positions of the joints, of the left arm first: rad; grippers from 0, "
    "closed, to 1, open, normalized by the constants of the follower.",
}
_BASE = {"base_action": ("linear_velocity", "angular_velocity")}


class AlohaSource(Hdf5EpisodesSource):
    """A folder of `episode_0.hdf5`, ..., as ACT, ALOHA and Mobile ALOHA record them.

    `observations/...` become the observation, and other arrays with a row for each action fields of
    the steps. Attributes and other arrays are fields of the episode. Images that are files stay the
    same bytes, without the padding. All files have what the first one has that can be read.

    An episode is `truncated` and its final observation is not known. Its field `layout` says in
    JSON in what its file is stored otherwise than the first one, of which the metadata of the
    dataset has the layout: `rlds.sources.export` makes the same files again.

    Args:
      path: The folder, or a file.
      colour: The order of the channels in images that are files, which the files do not say and in
        which labs differ: a note for who reads them, by `Field.names`. Nothing is exchanged.
      instruction: A text that becomes the field `language_instruction` of every step.
      joint_names: What the joints are called, if there are not 14 or their order is not that of
        ALOHA (left arm, left gripper, right arm, right gripper).

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: No file can be read.
    """

    description = "Episodes of a robot with two arms, recorded by ACT or ALOHA."
    homepage = "https://github.com/tonyzhaozh/act"
    unread = (COMPRESS_LEN,)

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        colour: Literal["as decoded", "rgb", "bgr"] = "as decoded",
        instruction: str | None = None,
        joint_names: Sequence[str] | None = None,
    ) -> None:
        self._files = _find_files(path)
        if not self._files:
            raise FileNotFoundError(f"{os.fspath(path)!r} has no files episode_0.hdf5, ...")
        self._colour, self._instruction, self._joint_names = colour, instruction, joint_names
        directory = self._files[0].parent
        is_folder = stores.as_path(path).is_dir()
        self._kept = StoredSidecar.in_folder(directory / ASIDE) if is_folder else None
        self._look_at_first(("train", index) for index in range(len(self._files)))

    @classmethod
    def recognizes(cls, path: str | os.PathLike[str]) -> bool:
        """See `Source`."""
        files = _find_files(path)
        if not files:
            return False
        hdf5 = Hdf5File(files[0])
        with hdf5.read() as file:
            if not (hdf5.has(file, ACTION) and hdf5.has(file, OBSERVATIONS)):
                return False
            observations = hdf5.member(file, OBSERVATIONS, OBSERVATIONS)
            return not hasattr(observations, "dtype") and hdf5.has(observations, "qpos")

    # --- See `Hdf5EpisodesSource`.

    @contextlib.contextmanager
    def _opened(self, split: str, index: int) -> Iterator[EpisodeGroup]:
        del split
        hdf5 = Hdf5File(self._files[index])
        with hdf5.read() as file:
            yield EpisodeGroup(hdf5, file)

    def _origin(self, split: str, index: int) -> str:
        del split
        return str(self._files[index].name)

    def _num_transitions(self, group: EpisodeGroup) -> int:
        return group.num_rows(ACTION) or 0

    def _column(self, path: str, group: EpisodeGroup, num_transitions: int) -> Column | None:
        root = root_of(path)
        if root not in (ACTION, OBSERVATIONS, *_BASE) and group.num_rows(path) != num_transitions:
            return None
        field = group.field(path)
        if field.encoding:
            field = of_colour(field, self._colour)
        elif path in _OF_JOINTS and field.shape and field.shape[-1]:
            names = tuple(self._joint_names or _JOINTS)
            if field.shape == (len(names),):
                field = dataclasses.replace(field, names=names, doc=_DOCS.get(path, ""))
        elif path in _BASE and field.shape == (len(_BASE[path]),):
            field = dataclasses.replace(field, names=_BASE[path], doc="m/s and rad/s")
        if root == OBSERVATIONS:
            path = rlds.OBSERVATION + path.removeprefix(OBSERVATIONS)
        return Column(path, field, whole=False)

    def _constants(self, split: str, index: int, group: EpisodeGroup) -> Mapping[str, str]:
        return {} if self._instruction is None else {INSTRUCTION: self._instruction}

    def _constant_fields(self) -> Sequence[str]:
        return () if self._instruction is None else (INSTRUCTION,)

    def key(self, split: str, index: int) -> str:
        """Returns the name of the file: "episode_0"."""
        return str(self._files[index].stem)

    # --- See `Source`.

    def stored_sidecar(self) -> StoredSidecar | None:
        """Returns what an export has kept in the folder `rlds`."""
        return self._kept

    def metadata(self) -> Mapping[str, Any]:
        """Returns how the first file is stored, the rate, and what the options say."""
        said = {"control_frequency_hz": _RATE, "layout": self._first_layout}
        return {METADATA_KEY: {**said, "options": self.options()}}

    def options(self) -> Mapping[str, Any]:
        """Returns the options."""
        return {
            "colour": self._colour,
            "instruction": self._instruction,
            "joint_names": None if self._joint_names is None else list(self._joint_names),
        }

    def inputs(self) -> Sequence[epath.Path]:
        """Returns the files."""
        return present(self._files)

    def num_episodes(self, split: str) -> int:
        """Returns how many files there are."""
        del split
        return len(self._files)


def _find_files(path: str | os.PathLike[str]) -> list[epath.Path]:
    """Returns the files of the episodes, by number."""
    place = stores.as_path(path)
    if not place.is_dir():
        return require_files(path) if _FILE.fullmatch(str(place.name)) else []
    names = [entry.name for entry in stores.list_directory(place) if _FILE.fullmatch(entry.name)]
    return [place / name for name in sorted(names, key=natural_order)]
