"""Folders of `.npz` files, as `numpy.savez` writes them: one file for an episode.

    observation                  T + 1 rows, or T without the final observation
    action                       T rows
    reward, discount             T rows; optional
    terminal, terminated, done   whether the episode ended in a terminal state; optional
    truncated, timeout           whether it was cut; optional

Names may be plural, and `observation/camera` is a field of the observation. Flags are scalars, or
have a row for each action or each observation, of which only the last may be set. A `done` means a
terminal state unless `truncated` is also set. Without flags, a last discount of zero means a
terminal state. If `next_observation` has T rows, its last row is the final observation.

Steps of RLDS have `is_first`, `is_last` or `is_terminal`, and equal numbers of rows. Rows stay
unchanged, and the last step holds the final observation, unless `final_observation_known` is false.

All other arrays keep their names. Arrays with T or T + 1 rows are fields of the steps, the rest
fields of the episode; the first file decides for all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
from rlds.alignment import append_row
from rlds.formats.npz.arrays import EpisodeFile, Layout, open_episode
from rlds.formats.rows_source import EpisodeRows, RowsSource, RowsTable
from rlds.raw_files.input_files import files_at, present
from rlds.raw_files.untrusted import source_errors
from rlds.sources.conventions import check_option, check_time_limit, warn_of_convention
from rlds.sources.episode_fields import RESERVED
from rlds.sources.source import TRANSITION_FIELDS, Origin, SourceInfo
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import is_below, nest, root_of

__all__ = ["NpzSource"]

_SUFFIX = ".npz"
# The prefix of the action, reward and discount of the first row in the order RSA.
_PLACEHOLDERS_GROUP = "placeholders"


class NpzSource(RowsSource):
    """A folder of `.npz` files, one for each episode.

    See the module for the arrays. Episodes come in the natural order of their files
    (`ep2.npz` before `ep10.npz`), whose names are their keys. All files have the arrays, dtypes and
    shapes of the first one. Only arrays that are requested are read.

    An episode is `truncated` unless a flag marks a terminal state. An episode without flags, or
    with a set flag, is `complete`.

    Args:
      path: The folder, or a file.
      per_episode: Names of arrays that belong to the episode, although they have a row for each
        step in the first file.
      alignment: "sar": the action of a row was taken on its observation, and its reward followed.
        "rsa": they led to the observation of the row, as in files of DrQ-v2, ExORL and Dreamer.
        The action, reward and discount of row 0 are `placeholders` of the episode. The
        default is "sar", with a warning if the first action is zero and few other actions are.
      time_limit: For files with `done` alone, which may mean a terminal state or a time limit: the
        number of transitions after which the environment cuts an episode, or 0 if it cuts none. By
        default a `done` is a terminal state, with a warning.
      observation: The array of observations, such as "image", or several arrays, which become its
        fields.
      action: The array of actions, or several arrays, which become its fields.
      reward: The array of rewards.
      terminal: The name of the flag of terminal states.
      truncated: The name of the flag of truncated episodes.
      done: The name of the flag of terminal states and time limits.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: The first file is damaged, or not an episode.
      ValueError: An argument names an array that the first file lacks; or the time limit is
        negative.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        per_episode: Sequence[str] = (),
        alignment: Literal["sar", "rsa"] | None = None,
        time_limit: int | None = None,
        observation: str | Sequence[str] = (),
        action: str | Sequence[str] = (),
        reward: str = "",
        terminal: str = "",
        truncated: str = "",
        done: str = "",
    ) -> None:
        check_option("alignment", alignment, ("sar", "rsa"))
        check_time_limit(time_limit)
        self._per_episode = tuple(per_episode)
        flags = {"terminal": terminal, "truncated": truncated, "done": done}
        names = {"observation": observation, "action": action, "reward": reward, **flags}
        self._names = {option: _paths_of(option, value) for option, value in names.items() if value}
        called = {name: path for paths in self._names.values() for name, path in paths.items()}
        self._layout = Layout(alignment, called, time_limit)
        self._files = files_at(path, lambda name: name.endswith(_SUFFIX))
        if not self._files:
            raise FileNotFoundError(f"{os.fspath(path)!r} has no {_SUFFIX} files.")
        with source_errors(os.fspath(path)):
            for file in self._files:
                file.name.encode()  # The key of an episode is text.
        steps, values = dict[str, Field](), dict[str, Field]()
        with open_episode(self._files[0], self._layout) as first:
            existing = [*first.paths, *first.flags]
            arguments = {"per_episode": {name: name for name in self._per_episode}, **self._names}
            for option, paths in arguments.items():
                for name, path_in_episode in paths.items():
                    if not any(is_below(array_path, path_in_episode) for array_path in existing):
                        raise ValueError(f"{option}: got {name!r}, expected one of {existing}")
            for array_path in first.paths:
                is_step_field = self._has_step_rows(array_path, first)
                of_episode = (*RESERVED, *([_PLACEHOLDERS_GROUP] if self._is_rsa else []))
                if root_of(array_path) in (rlds.STEP_FLAGS if is_step_field else of_episode):
                    raise first.error("this name is reserved: rename the array", array_path)
                fields = steps if is_step_field else values
                fields[array_path] = first.field(array_path, is_step_field=is_step_field)
            may_be_rsa = alignment is None and first.starts_with_placeholder()
            may_be_cut = time_limit is None and first.is_done_ambiguous
        self.step_fields, self.value_fields = steps, values
        moved = [p for p in steps if root_of(p) in TRANSITION_FIELDS] if self._is_rsa else []
        leftovers = {path: f"{_PLACEHOLDERS_GROUP}/{path}" for path in moved}
        self.table = RowsTable({}, "rsa" if self._is_rsa else "sar", leftovers=leftovers)
        if may_be_cut:
            warn_of_convention(
                self._files[0],
                "a done may be a terminal state or a time limit. It is read as a terminal state: "
                "pass time_limit=... in steps, or time_limit=0 if there is none",
            )
        if may_be_rsa:
            warn_of_convention(
                self._files[0],
                "the first action is zero, and few other actions are: it may be a placeholder, as "
                "in DrQ-v2 and Dreamer, where an action led to the observation of its row. The "
                "file is read as alignment='sar': pass alignment='rsa' or alignment='sar'",
            )

    @property
    def _is_rsa(self) -> bool:
        return self._layout.alignment == "rsa"

    def _has_step_rows(self, path: str, first: EpisodeFile) -> bool:
        if _is_main(path):
            return True
        if any(is_below(path, name) for name in self._per_episode):
            return False
        return first.rows(path) in (first.num_rows, first.num_rows + (not self._is_rsa))

    def inputs(self) -> Sequence[epath.Path]:
        """Returns the files."""
        return present(self._files)

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        return SourceInfo(
            options={
                "per_episode": list(self._per_episode),
                "alignment": self._layout.alignment,
                **({rlds.OBSERVATION: {}} | self._names),
                "time_limit": self._layout.time_limit,
            }
        )

    @override
    def num_episodes(self, split: str) -> int:
        return len(self._files)

    def key(self, split: str, index: int) -> str:
        """Returns the name of the file."""
        return str(self._files[index].name)

    @contextlib.contextmanager
    @override
    def _open_rows(self, split: str, index: int) -> Iterator[EpisodeRows]:
        """Opens a file with the same arrays as the first one."""
        with open_episode(self._files[index], self._layout) as episode:
            first, expected = self._files[0].name, {**self.step_fields, **self.value_fields}
            existing = set(episode.paths)
            for path in [path for path in expected if path not in existing]:
                raise episode.error(f"no such array, but {first} has it", path)
            for path in episode.paths:
                if path not in expected:
                    raise episode.error(f"{first} has no such array", path)
                is_step_field = path in self.step_fields
                if is_step_field:
                    episode.check_rows(path)
                field = episode.field(path, is_step_field=is_step_field)
                if field != expected[path]:
                    raise episode.error(f"{field}, expected {expected[path]}, as in {first}", path)
            terminal, complete = episode.ending()
            origin = Origin(episode.file.name, 0, episode.num_rows)
            final: Any = ""
            if episode.num_steps > episode.num_transitions:
                final = "extra" if episode.num_steps > episode.num_rows else "row"
            yield EpisodeRows(origin, episode.num_rows, terminal, final, complete, episode)

    @override
    def _find_table(self, episode: EpisodeRows) -> RowsTable:
        file: EpisodeFile = episode.handle
        other_paths = [path for path in self.step_fields if not _is_main(path)]
        transitions = [path for path in other_paths if file.rows(path) != file.num_steps]
        return dataclasses.replace(self.table, transitions=transitions)

    @override
    def _read_rows(self, episode: EpisodeRows, paths: Collection[str]) -> dict[str, np.ndarray]:
        file: EpisodeFile = episode.handle
        columns = {path: file.read(path) for path in self.step_fields if path in paths}
        for path in columns.keys() & file.following.keys():
            final = file.read(file.following[path])[-1]
            columns[path] = append_row(columns[path], final)
        return columns

    @override
    def _values(self, episode: EpisodeRows, paths: Collection[str]) -> Mapping[str, Any]:
        # An array without dimensions is a scalar.
        return {path: episode.handle.read(path)[()] for path in self.value_fields if path in paths}

    @override
    def _steps(self, episode: EpisodeRows, columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
        steps = super()._steps(episode, columns)
        if episode.handle.are_steps:  # Stored steps keep their last row.
            steps |= nest({p: c for p, c in columns.items() if root_of(p) in TRANSITION_FIELDS})
        return steps


def _paths_of(root: str, names: str | Sequence[str]) -> dict[str, str]:
    """Returns the paths in an episode of the arrays of an option, by array name."""
    if isinstance(names, str):
        return {names: root}
    return {name: f"{root}/{name}" for name in names}


def _is_main(path: str) -> bool:
    return root_of(path) in (rlds.OBSERVATION, *TRANSITION_FIELDS)
