"""RoboMIND: `<embodiment>/<task>/success_episodes/{train,val}/<id>/data/trajectory.hdf5`.

    puppet/<name>                         T rows: the state of the robot
    master/<name>                         T rows: the state of the teleoperator, the action
    observations/rgb_images/<camera>      T images: JPEG files, or frames of raw pixels
    observations/depth_images/<camera>    T images: PNG files

There are no times (the rate is about 10 Hz), no rewards and no observation after the last action.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
from etils import epath
from typing_extensions import override

from rlds.formats.hdf5_source import Hdf5Episode, Hdf5EpisodesSource, Hdf5Table
from rlds.raw_files.hdf5_access import Hdf5File
from rlds.raw_files.hdf5_episodes import EpisodeGroup
from rlds.raw_files.image_files import is_image_file
from rlds.raw_files.input_files import natural_order
from rlds.raw_files.untrusted import folders_in, is_there
from rlds.sources.source import SourceInfo
from rlds.sources.texts import as_text
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.fields import Field
from tfds_files.png import encode_png

__all__ = ["RoboMindSource"]

_SPLITS = ("train", "val")
_SUCCESS, _FILE = "success_episodes", ("data", "trajectory.hdf5")
_RAW_INSTRUCTION = "language_raw"
_TABLE = Hdf5Table(
    steps={"puppet": "observation", "observations": "observation", "master": "action"},
    actions="master",
)
# The shapes of frames of raw pixels, by size in bytes.
_FRAME_SHAPES = {h * w * 3: (h, w, 3) for h, w in ((720, 1280), (480, 640))}
# The maximum number of levels of folders above the episodes.
_MAX_LEVELS = 3


class RoboMindSource(Hdf5EpisodesSource):
    """Episodes of one embodiment of RoboMIND; other embodiments have other fields.

    `puppet/...` and the images become the observation, and `master/...` the action. Image files
    stay unchanged. Frames of raw pixels become PNG files. The episodes have the fields `embodiment`
    and `task`, after their folders. If a file has
    `language_raw`, it is also the `language_instruction` of the steps.

    Args:
      path: The folder of an embodiment or a task, or a folder below; or a file `trajectory.hdf5`.
      colour: The order of the channels in images, which is BGR for some robots. The order becomes
        `Field.names`; pixels stay unchanged.
      instructions: The `language_instruction` of tasks, by the names of their folders; for other
        tasks it is empty.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: No file can be read.
    """

    table = _TABLE

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        colour: Literal["as decoded", "rgb", "bgr"] = "as decoded",
        instructions: Mapping[str, str] | None = None,
    ) -> None:
        self.colour, self._instructions = colour, dict(instructions or {})
        episodes = _find_episodes(path)
        if not episodes:
            pattern = "/".join((_SUCCESS, "{train,val}", "<id>", *_FILE))
            raise FileNotFoundError(f"{os.fspath(path)!r} has no files {pattern}")
        self._set_episodes(episodes)
        self.has_instruction = bool(self._instructions) or _RAW_INSTRUCTION in self._values

    def _group(self, hdf5: Hdf5File, file: Any, episode: Hdf5Episode) -> EpisodeGroup:
        return _Trajectory(hdf5, file)

    def _other_values(self, episode: Hdf5Episode) -> Mapping[str, Any]:
        embodiment, task = _names_of(episode)
        return {"embodiment": embodiment, "task": task}

    def _other_fields(self) -> Mapping[str, Field]:
        return {"embodiment": Field(str), "task": Field(str)}

    def _instruction(self, episode: Hdf5Episode, group: EpisodeGroup) -> str:
        text = self._instructions.get(_names_of(episode)[1], "")
        if not text and _RAW_INSTRUCTION in self._values:
            texts = np.asarray(group.value(_RAW_INSTRUCTION), object).reshape(-1)
            text = texts[0] if len(texts) else ""
        return as_text(text)

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        options = {"colour": self.colour, "instructions": self._instructions}
        return SourceInfo(
            description="Episodes of RoboMIND.",
            homepage="https://x-humanoid-robomind.github.io",
            metadata={"robomind": {"options": options}},
            options=options,
            aliases=self.table.aliases,
        )


class _Trajectory(EpisodeGroup):
    """A file whose frames of raw pixels become PNG files."""

    def files(self, path: str, rows: slice) -> np.ndarray:
        """Reads rows of image files or frames."""
        files = super().files(path, rows)
        files[:] = [_frame_as_file(row) for row in files]
        return files


def _frame_as_file(row: bytes) -> bytes:
    """Encodes a frame of raw pixels as a PNG file; returns files unchanged."""
    if len(row) not in _FRAME_SHAPES or is_image_file(row):
        return row
    return encode_png(np.frombuffer(row, np.uint8).reshape(_FRAME_SHAPES[len(row)]), filters=False)


def _names_of(episode: Hdf5Episode) -> tuple[str, str]:
    """Returns the folders of the embodiment and the task; empty in another folder structure."""
    names = episode.file.parts
    return (names[-7], names[-6]) if len(names) >= 7 and names[-5] == _SUCCESS else ("", "")


def _find_episodes(path: str | os.PathLike[str]) -> dict[str, list[Hdf5Episode]]:
    """Returns the episodes of each split with episodes, in natural order."""
    root = stores.as_path(os.path.abspath(path) if stores.is_local(path) else path)
    episodes: dict[str, list[Hdf5Episode]] = {}
    for file in sorted(_walk(root, _MAX_LEVELS), key=lambda file: natural_order(os.fspath(file))):
        split = file.parts[-4] if file.parts[-4:][0] in _SPLITS else _SPLITS[0]
        below = os.fspath(file).removeprefix(os.fspath(root)).lstrip("/") or "/".join(_FILE)
        # The names of the episode's folders, without the fixed names.
        names = [name for name in below.split("/")[: -len(_FILE)] if name not in (_SUCCESS, split)]
        key = "/".join(names) or file.parts[-3]
        episodes.setdefault(split, []).append(Hdf5Episode(key, file, below))
    return {split: episodes[split] for split in _SPLITS if split in episodes}


def _walk(path: Any, levels: int) -> Iterator[epath.Path]:
    """Yields the trajectory files at a path or below it.

    Each folder of an episode should have one; a missing file is yielded, too.
    """
    names = list(path.parts)
    if _SUCCESS in names[-5:]:
        below = names[::-1].index(_SUCCESS)
        if below == 0:
            for split in _SPLITS:
                if is_there(path / split):
                    yield from _walk(path / split, 0)
        elif below == 1:
            ids = folders_in(path) if path.is_dir() else []
            yield from (path.joinpath(episode_id, *_FILE) for episode_id in ids)
        else:
            yield path.joinpath(*_FILE[below - 2 :])
    elif path.name == _FILE[-1]:
        if path.exists() and not path.is_dir():
            yield path
    elif is_there(path / _SUCCESS):
        yield from _walk(path / _SUCCESS, 0)
    elif levels and path.is_dir():
        for name in folders_in(path):
            yield from _walk(path / name, levels - 1)
