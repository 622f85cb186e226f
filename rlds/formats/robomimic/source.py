"""Demonstrations in robomimic's format, as many simulators write it: HDF5, `data/demo_0`.

Raw demonstrations of robosuite, robomimic's own, those of MimicGen, LIBERO (as published, and as
replayed for OpenVLA), RoboCasa up to 0.2 and Isaac Lab have the same names, but not always the same
meaning: a row of LIBERO's `obs` is what followed the action of the row.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

from etils import epath
from typing_extensions import override

from rlds.formats.hdf5_sidecar import read_hdf5_sidecar
from rlds.formats.robomimic.dialects import DIALECTS, dialect_of
from rlds.formats.robomimic.files import DemoFile, actions_in
from rlds.formats.robomimic.recorded import RecordedDemos
from rlds.raw_files.input_files import natural_order
from rlds.raw_files.untrusted import SourceChangedError, SourceError, source_errors
from rlds.sources.sidecar import StoredSidecar
from rlds.sources.source import (
    ALL_ROWS,
    DamagedEpisode,
    RandomAccessSource,
    SourceEpisode,
    require_files,
)
from rlds_ecosystem import stores
from rlds_ecosystem.nests import nest

__all__ = ["RobomimicSource"]

_SUFFIXES = (".hdf5", ".h5")


class RobomimicSource(RandomAccessSource):
    """A file of demonstrations in robomimic's format or one of its dialects, or a folder of them.

    An episode is a demonstration; `data/demo_2` comes before `data/demo_10`. Its key is its name,
    or `file.hdf5/demo_2` in a folder. With `T` actions it has `T + 1` steps where the observation
    after the last action is known, by `next_obs`, and `T` where it is not.

    `actions`, `rewards` and `obs` become `action`, `reward` and `observation`. Every other array
    with a row for each action is a field of the steps, with its name; where a demonstration lacks
    it, it is filled up, and `<name>_known` is false. All others are fields of the episode:

    * arrays of other lengths, with their names;
    * `next_obs`: the rows of it, unless they repeat the observations of the next steps;
    * `first_rows` and `last_rows`: rows that belong to no step, because arrays are shifted;
    * `attributes`: those of the demonstration, and of its arrays and groups by their paths;
    * `masks`: the names of the masks that it is in.

    `language_instruction`, a field of the steps, is what LIBERO and RoboCasa say that a
    demonstration does.

    Args:
      path: The file or the folder. The files of a folder make one dataset.
      dialect: How the names are meant; found out from the first file by default.
      alignment: What becomes of LIBERO's observations, each of which is what followed the action of
        its row. "as_stored" leaves them there. "shift" puts them with the next action; the first
        action, whose observation is not known, moves to `first_rows`. (The `states` of Isaac Lab,
        which follow the action too, are always shifted: it has the initial ones as well.)
      terminal: Which demonstrations end in a terminal state. "success": those with `dones` and a
        reward of 1 or more in the last row. "dones": those with `dones` there. "never": none.
      per_episode: Names of arrays that belong to the episode, although they have as many rows as
        there are actions.
      follow_links: Whether to read what a file has in other files. By default it is an error.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: The file is damaged, or cut short; none of its demonstrations can be read.
    """

    description = "Demonstrations in a simulator, in robomimic's format."
    homepage = "https://robomimic.github.io"
    reads_rows = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        dialect: Literal[
            "isaac_lab", "libero", "libero_regenerated", "mimicgen", "robosuite", "robomimic"
        ]
        | None = None,
        alignment: Literal["as_stored", "shift"] = "as_stored",
        terminal: Literal["success", "dones", "never"] = "success",
        per_episode: Sequence[str] = (),
        follow_links: bool = False,
    ) -> None:
        if dialect not in (None, *DIALECTS):
            raise ValueError(f"dialect: got {dialect!r}, expected one of {', '.join(DIALECTS)}")
        self._options = {
            "dialect": dialect,
            "alignment": alignment,
            "terminal": terminal,
            "per_episode": list(per_episode),
            "follow_links": follow_links,
        }
        paths = _find_files(path)
        if not paths:
            raise FileNotFoundError(f"{os.fspath(path)!r} has no files {' or '.join(_SUFFIXES)}")
        # Of several files, others are readable where one is cut short.
        self._paths = paths
        self._is_folder = len(paths) > 1
        self._cut: list[tuple[str, SourceError]] = []
        with source_errors(os.fspath(path)):
            files = self._open(paths, follow_links)
            self._files = files
            self._is_exported = files[0].is_exported and not self._is_folder
            # Exports write what the names mean in robomimic itself.
            found = "robomimic" if self._is_exported else dialect_of(files[0].first_look).name
            self._demos = RecordedDemos(
                files,
                DIALECTS[dialect or found],
                alignment=alignment,
                terminal=terminal,
                per_episode=per_episode,
            )
            prefix = "{}/" if self._is_folder else ""
            self._keys = [
                prefix.format(files[demo.file].name) + demo.name for demo in self._demos.demos
            ]

    def _open(self, paths: Sequence[epath.Path], follow_links: bool) -> list[DemoFile]:
        files: list[DemoFile] = []
        for path in paths:
            path.name.encode()  # The key of an episode is text.
            try:
                files.append(DemoFile(path, len(files), follow_links=follow_links))
            except SourceChangedError:
                raise
            except SourceError as error:
                self._cut.append((path.name, error))
        if not files:
            raise self._cut[0][1]
        return files

    @classmethod
    @override
    def recognizes(cls, path: str | os.PathLike[str]) -> bool:
        files = _find_files(path)
        return bool(files) and actions_in(files[0])

    @override
    def step_fields(self) -> Mapping[str, Any]:
        return nest(self._demos.step_fields)

    @override
    def episode_fields(self) -> Mapping[str, Any]:
        return nest(self._demos.episode_fields)

    @override
    def metadata(self) -> Mapping[str, Any]:
        return self._demos.metadata()

    @override
    def stored_sidecar(self) -> StoredSidecar | None:
        return read_hdf5_sidecar(self._files[0].hdf5) if self._is_exported else None

    @override
    def inputs(self) -> Sequence[epath.Path]:
        return [path for file in self._files for path in file.hdf5.inputs()]

    @override
    def options(self) -> Mapping[str, Any]:
        return self._options

    @override
    def num_episodes(self, split: str) -> int:
        return len(self._keys) + len(self._cut)  # A file that is cut short counts as one.

    @override
    def totals(self, split: str) -> Mapping[str, int]:
        return {"rows": sum(demo.length for demo in self._demos.demos if demo.damage is None)}

    @override
    def key(self, split: str, index: int) -> str:
        number = len(self._keys)
        return self._keys[index] if index < number else self._cut[index - number][0]

    @override
    def episodes(
        self, split: str, part: str, after: str | None = None
    ) -> Iterator[SourceEpisode | DamagedEpisode]:
        with contextlib.ExitStack() as stack:
            for file in self._files:  # Each is opened once.
                stack.enter_context(file.hdf5)
            yield from super().episodes(split, part, after)

    @override
    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        if index >= len(self._keys):
            raise self._cut[index - len(self._keys)][1]
        return self._demos.read(
            index,
            self._keys[index],
            self.step_paths(fields),
            self.episode_paths(fields),
            rows,
        )


def _find_files(path: str | os.PathLike[str]) -> list[epath.Path]:
    place = stores.as_path(path)
    if place.name.endswith(_SUFFIXES) and not place.is_dir():
        return require_files(place)
    names = [
        entry.name
        for entry in stores.list_directory(place)
        if entry.name.endswith(_SUFFIXES) and not entry.name.startswith(".") and not entry.is_dir
    ]
    return [place / name for name in sorted(names, key=natural_order)]
