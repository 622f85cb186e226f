"""Demonstrations in robomimic's format, as many simulators write it: HDF5, `data/demo_0`.

Raw demonstrations of robosuite, robomimic's own, those of MimicGen, LIBERO (as published, and as
replayed for OpenVLA), RoboCasa up to 0.2 and Isaac Lab have the same names, but not always the same
meaning: a row of LIBERO's `obs` is what followed the action of the row.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from etils import epath

from rlds.formats.robomimic.dialects import DIALECTS, dialect_of
from rlds.formats.robomimic.files import DemoFile, actions_in
from rlds.formats.robomimic.kept import KeptEpisodes
from rlds.formats.robomimic.recorded import RecordedDemos
from rlds.raw_files.input_files import natural_order
from rlds.raw_files.untrusted import SourceChangedError, SourceError, source_errors
from rlds.sources.source import (
    DamagedEpisode,
    Outline,
    RandomAccessSource,
    SourceEpisode,
    require_files,
)
from rlds_ecosystem import stores
from rlds_ecosystem.nests import leaves_at, nest

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
    * `attributes`: what all demonstrations have. Instead of a `model_file` that repeats there is a
      digest, which the metadata of the dataset has the text for;
    * `masks`: the names of the masks that it is in;
    * `layout`, in JSON: what else is needed to write the same file.

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
    reads_spans = True

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
            kept = files[0].kept is not None and not self._is_folder
            self._demos: KeptEpisodes | RecordedDemos = (
                KeptEpisodes(files[0])
                if kept
                else RecordedDemos(
                    files,
                    DIALECTS[dialect] if dialect else dialect_of(files[0].first_look),
                    alignment=alignment,
                    terminal=terminal,
                    per_episode=per_episode,
                )
            )
            if isinstance(self._demos, KeptEpisodes):
                self.description = self._demos.description
            self._keys = self._make_keys()

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

    def _make_keys(self) -> list[str]:
        if isinstance(self._demos, KeptEpisodes):
            return self._demos.keys
        prefix = "{}/" if self._is_folder else ""
        return [
            prefix.format(self._files[demo.file].name) + demo.name for demo in self._demos.demos
        ]

    @classmethod
    def recognizes(cls, path: str | os.PathLike[str]) -> bool:
        """See `Source`."""
        files = _find_files(path)
        return bool(files) and actions_in(files[0])

    def step_fields(self) -> Mapping[str, Any]:
        """See `Source`."""
        return nest(self._demos.step_fields)

    def episode_fields(self) -> Mapping[str, Any]:
        """See `Source`."""
        return nest(self._demos.episode_fields)

    def metadata(self) -> Mapping[str, Any]:
        """Returns all that the files say beside the demonstrations, under `robomimic`."""
        return self._demos.metadata()

    def inputs(self) -> Sequence[epath.Path]:
        """Returns the files."""
        return [path for file in self._files for path in file.hdf5.inputs()]

    def options(self) -> Mapping[str, Any]:
        """Returns the options."""
        return self._options

    def num_episodes(self, split: str) -> int:
        """Returns how many demonstrations there are; a file that is cut short counts as one."""
        del split
        return len(self._keys) + len(self._cut)

    def totals(self, split: str) -> Mapping[str, int]:
        """Returns how many rows of actions there are."""
        del split
        if isinstance(self._demos, KeptEpisodes):
            return {}
        return {"rows": sum(demo.length for demo in self._demos.demos if demo.damage is None)}

    def key(self, split: str, index: int) -> str:
        """See `RandomAccessSource`."""
        del split
        return self._keys[index] if index < len(self._keys) else self._damage(index)[0]

    def _damage(self, index: int) -> tuple[str, SourceError]:
        return self._cut[index - len(self._keys)]

    def episodes(
        self, split: str, part: str, after: str | None = None
    ) -> Iterator[SourceEpisode | DamagedEpisode]:
        """Yields the episodes of a range, all of files that stay open; see `Source.episodes`."""
        with contextlib.ExitStack() as stack:
            for file in self._files:
                stack.enter_context(file.hdf5)
            yield from super().episodes(split, part, after)

    def read(self, split: str, index: int) -> SourceEpisode:
        """Reads an episode; see `RandomAccessSource`."""
        return self._readable(index).read(index, self.key(split, index))

    def peek(self, split: str, index: int) -> SourceEpisode:
        """Reads what is said of an episode, and its flags; see `RandomAccessSource`."""
        return self._readable(index).peek(index, self.key(split, index))

    def outline(self, split: str, index: int) -> Outline:
        """Reads the flags of an episode; see `RandomAccessSource`."""
        del split
        return self._readable(index).outline(index)

    def read_steps(
        self, split: str, index: int, fields: Sequence[str] | None = None
    ) -> Mapping[str, Any]:
        """Reads the wanted fields of the steps of an episode."""
        return self.read_span(split, index, fields, 0, None)

    def read_span(
        self,
        split: str,
        index: int,
        fields: Sequence[str] | None,
        begin: int,
        end: int | None,
    ) -> Mapping[str, Any]:
        """Reads the wanted fields of consecutive steps, and no other rows."""
        del split
        wanted = self._step_paths(fields)
        columns = self._readable(index).columns(index, wanted, begin, end)
        return nest(dict(leaves_at(columns, wanted)))

    def _readable(self, index: int) -> KeptEpisodes | RecordedDemos:
        if index >= len(self._keys):
            raise self._damage(index)[1]
        return self._demos


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
