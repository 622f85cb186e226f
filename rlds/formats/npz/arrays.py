"""The arrays of an `.npz` file with one episode: their names and lengths."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from etils import epath

import rlds
from rlds.raw_files.npz_files import NpzFile, open_npz
from rlds.sources.source import TRANSITION_FIELDS, SourceError
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import Paths, conflicts, is_below, root_of

__all__ = ["EpisodeFile", "Layout", "open_episode"]

_NEXT = "next_observation"
_SINGULARS = {f"{name}s": name for name in (rlds.OBSERVATION, _NEXT, *TRANSITION_FIELDS)}
_TERMINAL, _DONE, _TRUNCATED = "terminal", "done", "truncated"
_FLAG_NAMES = {
    **{name: name for name in (*rlds.STEP_FLAGS, rlds.FINAL_OBSERVATION_KNOWN)},
    **dict.fromkeys(("terminal", "terminals", "terminated", "terminations"), _TERMINAL),
    **dict.fromkeys(("done", "dones"), _DONE),
    **dict.fromkeys(("truncated", "truncations", "timeout", "timeouts"), _TRUNCATED),
}
# The maximum fraction of zero actions for which a first zero action may be a placeholder.
_MAX_ZERO_FRACTION = 0.1


class Layout(NamedTuple):
    """The layout of NPZ files, declared by the user.

    Attributes:
      alignment: The order of state, action and reward in a row; None if unknown.
      names: The paths of renamed arrays in an episode, by array name; for flags, such as "done",
        their usual names.
      time_limit: The number of transitions after which the environment cuts an episode, if only
        `done` is stored; 0 if it cuts none, None if unknown.
    """

    alignment: Literal["sar", "rsa"] | None = None
    names: Mapping[str, str] = {}
    time_limit: int | None = None

    def path_of(self, name: str) -> str:
        """Returns the field path of an array, or of a group of arrays."""
        root, slash, suffix = name.partition("/")
        if "" in name.split("/"):
            raise ValueError(
                f"an array with the name {name!r}, expected no empty names between slashes"
            )
        for array_name, path in self.names.items():
            if is_below(name, array_name):
                return path + name.removeprefix(array_name)
        return f"{_SINGULARS.get(root, root)}{slash}{suffix}"


class EpisodeFile:
    """An open `.npz` file of an episode; arrays are read on demand.

    Attributes:
      file: The file.
      paths: The paths of its arrays in an episode, without the flags.
      are_steps: Whether the rows are the steps of RLDS, whose last action may be a placeholder.
      following: The arrays of next observations, by the arrays of observations; their last row is
        the final observation.
      num_rows: The number of rows of actions.
      num_transitions: The number of transitions among them.
      num_steps: The number of observations, with the final one if stored.
    """

    def __init__(self, arrays: NpzFile, layout: Layout) -> None:
        self.file, self._file, self._layout = arrays.file, arrays, layout
        self._arrays: Paths[str] = Paths()  # The names of arrays by path.
        self._flags: Paths[str] = Paths()
        for name in arrays.arrays:
            flag = _FLAG_NAMES.get(layout.names.get(name, name))
            names = self._arrays if flag is None else self._flags
            path = flag or layout.path_of(name)
            if path in names or conflicts(names, path):
                raise self.error(f"another array becomes {path!r}, too", name)
            names[path] = name
        self.paths = list(self._arrays)
        self.num_rows = self.num_transitions = self._rows_of_all(rlds.ACTION)
        self.num_steps = self._rows_of_all(rlds.OBSERVATION)
        for path in TRANSITION_FIELDS:
            if path in self.paths:
                self.check_rows(path)
        is_rsa = layout.alignment == "rsa"
        if self.num_steps not in (self.num_rows, self.num_rows + (not is_rsa)):
            expected = f"{self.num_rows}, as many as actions" + ("" if is_rsa else ", or one more")
            raise self.error(f"{self.num_steps} rows, expected {expected}", rlds.OBSERVATION)
        has_flags = any(name in self._flags for name in rlds.STEP_FLAGS)
        self.are_steps = has_flags and not is_rsa and self.num_steps == self.num_rows
        self.following = {} if is_rsa or self.are_steps else self._find_following()
        self.num_steps += bool(self.following)
        if is_rsa or (self.are_steps and self._has_final_observation()):
            self.num_transitions -= 1

    def error(self, problem: str, path: str) -> SourceError:
        """Returns an error about an array."""
        return SourceError(problem, file=self.file, field=path)

    def rows(self, path: str) -> int | None:
        """Returns the number of rows of an array; None for a scalar."""
        shape = self._file.arrays[self._arrays[path]].shape
        return shape[0] if shape else None

    def check_rows(self, path: str) -> None:
        """Checks that an array of the steps has a row for each.

        Raises:
          SourceError: The number of rows differs.
        """
        expected = {self.num_rows, self.num_steps}
        if root_of(path) in TRANSITION_FIELDS:
            expected = {self.num_rows}
        rows = self.rows(path)
        if rows not in expected:
            actual = "a scalar" if rows is None else f"{rows} rows"
            counts = " or ".join(map(str, sorted(expected)))
            raise self.error(f"{actual}, expected {counts} rows, one for each step", path)

    def field(self, path: str, *, is_step_field: bool) -> Field:
        """Returns the field of an array, for each step or for the episode."""
        array = self._file.arrays[self._arrays[path]]
        dtype, shape = array.dtype, array.shape
        text: dict[str, Any] = {"U": str, "S": bytes}
        return Field(text.get(dtype.kind, dtype), shape[1:] if is_step_field else shape)

    def read(self, path: str) -> np.ndarray:
        """Reads an array; text as objects."""
        return self._file.read(self._arrays[path])

    def ending(self) -> tuple[bool, bool]:
        """Returns two flags: the episode is terminal, and it is complete."""
        last_flags = {
            name: self._is_set(name)
            for name in self._flags
            if name not in (rlds.IS_FIRST, rlds.FINAL_OBSERVATION_KNOWN)
        }
        has_first = self._is_set(rlds.IS_FIRST, 0) if rlds.IS_FIRST in self._flags else True
        is_limit = self.is_done_ambiguous and self.num_transitions == self._layout.time_limit
        is_cut = last_flags.get(_TRUNCATED, is_limit)
        flags = [last_flags[name] for name in (_TERMINAL, rlds.IS_TERMINAL) if name in last_flags]
        flags += [last_flags[_DONE] and not is_cut] if _DONE in last_flags else []
        terminal = flags[0] if flags else self._ends_without_discount()
        return terminal, has_first and (not last_flags or any(last_flags.values()))

    @property
    def flags(self) -> list[str]:
        """The flags that the file has, by their usual names."""
        return list(self._flags)

    @property
    def is_done_ambiguous(self) -> bool:
        """Whether `done` may mean a time limit, because no other flag is stored."""
        explicit = (_TERMINAL, rlds.IS_TERMINAL, _TRUNCATED)
        return _DONE in self._flags and not any(name in self._flags for name in explicit)

    def starts_with_placeholder(self) -> bool:
        """True if the first action is zero, and few more are: actions precede observations."""
        actions = [self._file.read(self._arrays[p]) for p in self.paths if is_below(p, rlds.ACTION)]
        if self.num_steps != self.num_rows or any(action.dtype.kind != "f" for action in actions):
            return False
        zero = np.all([~a.reshape(self.num_rows, -1).any(axis=1) for a in actions], axis=0)
        return self.num_rows > 1 and bool(zero[0]) and float(zero[1:].mean()) <= _MAX_ZERO_FRACTION

    def _has_final_observation(self) -> bool:
        name = self._flags.get(rlds.FINAL_OBSERVATION_KNOWN)
        return name is None or bool(np.all(self._file.read(name)))

    def _find_following(self) -> dict[str, str]:
        """Finds next observations that give the final observation of the episode."""
        observation_paths = [path for path in self.paths if is_below(path, rlds.OBSERVATION)]
        pairs = {path: _NEXT + path.removeprefix(rlds.OBSERVATION) for path in observation_paths}
        exist = self.num_steps == self.num_rows and all(
            next_name in self._arrays
            and self.rows(next_name) == self.num_rows
            and self.field(next_name, is_step_field=True) == self.field(path, is_step_field=True)
            for path, next_name in pairs.items()
        )
        return pairs if exist else {}

    def _ends_without_discount(self) -> bool:
        """Whether the discount of the last transition is zero, as for a terminal state."""
        if rlds.DISCOUNT not in self._arrays or self.num_transitions < 1:
            return False
        discounts = self.read(rlds.DISCOUNT)
        last_row = self.num_transitions - 1 if self.are_steps else -1
        return not np.any(discounts[last_row])

    def _is_set(self, name: str, expected_row: int = -1) -> bool:
        flags = self._flags[name]
        if (dtype := self._file.arrays[flags].dtype).kind not in "biuf":
            raise self.error(f"{dtype}, expected bools", name)
        values = self._file.read(flags).reshape(-1)
        if len(values) not in (1, self.num_rows, self.num_steps):
            expected = f"1 or {self.num_rows}"
            raise self.error(f"{len(values)} values, expected {expected}", name)
        rows = np.flatnonzero(values)
        if invalid := sorted({*rows.tolist()} - {range(len(values))[expected_row]}):
            side = "last" if expected_row else "first"
            problem = f"set in row {invalid[0]} of {len(values)}, expected only in the {side} one"
            raise self.error(f"{problem}: each file must be one episode", name)
        return bool(len(rows))

    def _rows_of_all(self, root: str) -> int:
        """Returns the common number of rows of the arrays of an observation or an action."""
        paths = [path for path in self.paths if root_of(path) == root]
        if not paths:
            problem = f"no such array; the file has {', '.join(self.paths) or 'none'}"
            words = f'-O {root}=NAME, or -O \'{root}=["NAME", "NAME"]\''
            hint = f"if it has another name, pass {root}=... (on the command line {words})"
            raise self.error(f"{problem}: {hint}", root)
        rows = [self.rows(path) for path in paths]
        for path, num_rows in zip(paths, rows):
            if num_rows is None or num_rows != rows[0]:
                expected = "rows" if rows[0] is None else f"{rows[0]}, as {paths[0]} has"
                problem = "a scalar" if num_rows is None else f"{num_rows} rows"
                raise self.error(f"{problem}, expected {expected}", path)
        assert rows[0] is not None
        return rows[0]


@contextlib.contextmanager
def open_episode(file: epath.Path, layout: Layout) -> Iterator[EpisodeFile]:
    """Opens a file.

    Args:
      file: The file.
      layout: The layout declared by the user.

    Raises:
      FileNotFoundError: There is no such file.
      SourceError: The file is damaged, or not an episode.
    """
    with open_npz(file) as arrays:
        yield EpisodeFile(arrays, layout)
