"""Layouts: descriptions in YAML of the arrays in somebody's files. docs/layouts.md has the keys."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

import rlds
from rlds.formats.rows_source import Order, RowsTable
from rlds.raw_files.untrusted import SourceError, source_errors
from rlds.sources.episode_fields import RESERVED
from rlds.sources.source import require_files
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.names import what_there_is
from rlds_ecosystem.model.nests import conflicts, is_in, root_of
from rlds_ecosystem.model.texts import shorten

__all__ = ["LAYOUT_FILE", "QUESTIONS", "UNKNOWN", "FileLayout", "LayoutField"]

LAYOUT_FILE = "rlds_layout.yaml"
"""The layout of a folder, if it lies in it under this name."""

UNKNOWN = "???"
"""The value of a line that the user has to fill in."""

QUESTIONS: Mapping[str, str] = {
    "episodes": "the ends of episodes: {one_per: file}, {one_per: folder} or {one_per: group}; "
    "{ends: FLAG}, {end_rows: ARRAY}, {lengths: ARRAY} or {number: ARRAY of episode numbers}",
    "order": "sar: a row has an observation, the action taken on it, and the reward that followed; "
    "rsa: the action and the reward of a row led to its observation; dm_env: the reward of a row "
    "arrived with its observation, and its action was taken on it",
    "final_observation": "last_row: the last row of an episode has an observation only; "
    "extra_row: observations have one row more than actions; "
    "unknown: the observation after the last action is not stored; "
    "{FIELD: ARRAY}: an array has the next observations",
    "terminal": "the flag that marks terminal states, or true or false for all episodes; "
    "if a flag marks time limits, too, add a line truncated: FLAG or time_limit: STEPS",
    "unit": "the unit of the numbers, such as m or rad; or unknown",
}
"""What a user has to know to fill in a key."""

_MAX_BYTES, _MAX_DEPTH = 1 << 18, 16
_ORDERS = ("sar", "rsa", "dm_env")
_FINALS = ("last_row", "extra_row", "unknown")
_PLACES = ("one_per", "ends", "end_rows", "lengths", "number")
_UNITS_OF = ("file", "folder", "group")
_KEYS = (
    *("layout", "files", "groups", "episodes", "order", "final_observation", "terminal"),
    *("truncated", "time_limit", "steps", "episode", "leave_out"),
)
_FIELD_KEYS = ("from", "unit", "names", "dtype", "doc", "of")


class _Node(NamedTuple):
    """A value of YAML: a dict of nodes, a list of nodes, or a scalar; and its line."""

    value: Any
    line: int


@dataclasses.dataclass(frozen=True)
class LayoutField:
    """A field, and the arrays that hold it.

    Attributes:
      path: The path of the field.
      arrays: The arrays; the values of several are joined.
      where: The place in the layout, for errors.
      dtype: The dtype, if it is to be another than that of the arrays.
      unit: The unit, if it is known.
      names: The names of the elements.
      doc: A description.
    """

    path: str
    arrays: tuple[str, ...]
    where: str
    dtype: np.dtype | None = None
    unit: str | None = None
    names: tuple[str, ...] | None = None
    doc: str = ""


@dataclasses.dataclass(frozen=True)
class FileLayout:
    """The meaning of the arrays in files.

    Attributes:
      text: The layout in YAML.
      files: The pattern of the names of files or folders; empty for all.
      groups: The pattern of groups that are episodes.
      one_per: "file", "folder" or "group" if each is an episode, or "".
      flags: Flags that are set in the last row of each episode.
      end_rows: The array with the row after the last one of each episode.
      lengths: The array with the number of rows of each episode.
      number: The array whose value is another in each episode.
      order: The order of rows.
      final: The final observation: "row", "extra", "next" or "".
      next: The arrays of the next observations, by the paths of fields.
      terminal: The flag of terminal states, or whether all episodes end in one.
      truncated: The flag of time limits.
      time_limit: The number of transitions after which episodes are cut.
      steps: The fields of steps.
      episode: The fields of episodes.
      transitions: Paths of more fields that belong to transitions.
      leave_out: Arrays that are not read.
      lines: The places of names in the layout, for errors.
    """

    text: str
    files: str
    groups: str
    one_per: str
    flags: tuple[str, ...]
    end_rows: str
    lengths: str
    number: str
    order: Order
    final: Any
    next: Mapping[str, str]
    terminal: str | bool
    truncated: str
    time_limit: int
    steps: tuple[LayoutField, ...]
    episode: tuple[LayoutField, ...]
    transitions: tuple[str, ...]
    leave_out: tuple[str, ...]
    lines: Mapping[str, str]

    @property
    def table(self) -> RowsTable:
        """The table of the rows."""
        # With next observations, no other field has a value for the final one.
        others: Any = "transitions" if self.final == "next" else "observations"
        table = RowsTable({}, self.order, others, self.transitions)
        paths = [field.path for field in self.steps if table.is_of_transitions(field.path)]
        if self.final != "row":
            paths = []
        return dataclasses.replace(table, leftovers={path: f"leftover/{path}" for path in paths})

    @property
    def arrays(self) -> set[str]:
        """The names of all arrays that the layout mentions."""
        fields = (*self.steps, *self.episode)
        names = {name for field in fields for name in field.arrays} | {*self.flags, *self.leave_out}
        names |= {self.end_rows, self.lengths, self.number, self.truncated, *self.next.values()}
        return (names | {str(self.terminal)}) - {"", "True", "False"}

    @classmethod
    def of(cls, layout: str | os.PathLike[str]) -> FileLayout:
        """Returns a layout.

        Args:
          layout: The path of a file in YAML, or YAML of several lines.

        Raises:
          FileNotFoundError: There is no such file.
          SourceError: The layout has an error, or a line to fill in; names the line.
        """
        text, name = os.fspath(layout), "layout"
        if "\n" not in text:
            name = os.path.basename(text)
            (file,) = require_files(text)
            if file.stat().length > _MAX_BYTES:
                what = f"more than {_MAX_BYTES:,} bytes, expected a layout"
                raise SourceError(what, file=name)
            with source_errors(text):
                text = file.read_bytes().decode()
        return _Parser(name).read(text)


class _Parser:
    """Makes a layout of YAML.

    Args:
      name: The name of the file, for errors.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: dict[str, str] = {}

    def read(self, text: str) -> FileLayout:
        top = self._table(self._load(text), "the layout", _KEYS)
        version = self._need(top, "layout")
        if version.value != 1:
            self._fail(version, "layout", f"got version {version.value!r}, expected 1")
        episodes = self._episodes(self._need(top, "episodes"))
        order = self._one_of(self._need(top, "order"), "order", _ORDERS)
        steps, transitions = self._fields(self._need(top, "steps"), "steps")
        final, following = self._final(top, order, [field.path for field in steps])
        limit = top.get("time_limit", _Node(0, 0))
        if type(limit.value) is not int or limit.value < 0:
            self._fail(limit, "time_limit", f"got {limit.value!r}, expected a number of steps")
        terminal = self._need(top, "terminal")
        if not isinstance(terminal.value, bool):
            self._text(terminal, "terminal")
        values, _ = self._fields(top.get("episode", _Node({}, 0)), "episode")
        layout = FileLayout(
            text=text,
            files=self._text_of(top, "files"),
            groups=self._text_of(top, "groups") or "*",
            **episodes,
            order=order,
            final=final,
            next=following,
            terminal=terminal.value,
            truncated=self._text_of(top, "truncated"),
            time_limit=limit.value,
            steps=steps,
            episode=values,
            transitions=transitions,
            leave_out=self._texts(top.get("leave_out", _Node([], 0)), "leave_out"),
            lines=self._lines,
        )
        if final == "extra" and layout.one_per == "":
            self._fail(top["final_observation"], "final_observation", "extra_row needs one_per")
        return layout

    # --- Keys.

    def _episodes(self, node: _Node) -> dict[str, Any]:
        found = self._table(node, "episodes", _PLACES)
        if len(found) != 1:
            self._fail(node, "episodes", f"got {[*found]}, expected one of {', '.join(_PLACES)}")
        ends = found.get("ends")
        return {
            "one_per": self._one_of(found["one_per"], "episodes/one_per", _UNITS_OF)
            if "one_per" in found
            else "",
            "flags": self._texts(ends, "episodes/ends") if ends else (),
            **{key: self._text_of(found, key) for key in ("end_rows", "lengths", "number")},
        }

    def _final(
        self, top: Mapping[str, _Node], order: str, paths: list[str]
    ) -> tuple[str, dict[str, str]]:
        name = "final_observation"
        if order != "sar":
            if name in top and top[name].value != "last_row":
                self._fail(top[name], name, f"with order: {order}, the last row is the final one")
            return "row", {}
        node = self._need(top, name)
        if not isinstance(node.value, dict):
            chosen = self._one_of(node, name, _FINALS)
            return {"last_row": "row", "extra_row": "extra", "unknown": ""}[chosen], {}
        following = {path: self._text(it, f"{name}/{path}") for path, it in node.value.items()}
        expected = {path for path in paths if is_in(path, rlds.OBSERVATION)}
        if {*following} != expected:
            what = f"got arrays for {sorted(following)}, expected all of {sorted(expected)}"
            self._fail(node, name, what)
        return "next", following

    def _fields(self, node: _Node, key: str) -> tuple[tuple[LayoutField, ...], tuple[str, ...]]:
        fields: dict[str, LayoutField] = {}
        transitions = []
        taken = rlds.STEP_FLAGS if key == "steps" else (*RESERVED, "leftover")
        for path, item in self._table(node, key).items():
            where = f"{key}/{path}"
            is_taken = root_of(path) in taken or path in fields or conflicts(fields, path)
            if is_taken or not all(path.split("/")):
                self._fail(item, where, "the name is reserved, used twice, or has an empty part")
            given = item.value if isinstance(item.value, dict) else {"from": item}
            given = self._table(_Node(given, item.line), where, _FIELD_KEYS)
            dtype, unit = self._text_of(given, "dtype"), self._text_of(given, "unit")
            try:
                kind = np.dtype(dtype) if dtype else None
            except TypeError:
                kind = np.dtype(object)
            if kind is not None and kind.kind not in "biuf":
                self._fail(given["dtype"], f"{where}/dtype", f"got {dtype!r}, expected numbers")
            if self._text_of(given, "of") == "transition":
                transitions.append(path)
            elif "of" in given:
                self._fail(given["of"], f"{where}/of", "expected transition, or no such line")
            fields[path] = LayoutField(
                path,
                self._texts(self._need(given, "from", where), where),
                f"{self._name}: line {item.line}: {where}",
                kind,
                None if unit in ("", "unknown") else unit,
                self._texts(given["names"], f"{where}/names") if "names" in given else None,
                self._text_of(given, "doc"),
            )
        if key == "steps" and not fields:
            self._fail(node, key, "expected a field at least")
        return tuple(fields.values()), tuple(transitions)

    # --- Values.

    def _fail(self, node: _Node, key: str, what: str) -> NoReturn:
        raise SourceError(f"line {node.line}: {key}: {what}", file=self._name)

    def _need(self, table: Mapping[str, _Node], key: str, where: str = "") -> _Node:
        place = f"{where}/{key}" if where else key
        if key not in table:
            question = f" ({QUESTIONS[key]})" if key in QUESTIONS else ""
            raise SourceError(f"{place} is missing{question}", file=self._name)
        self._ask(table[key], place)
        return table[key]

    def _ask(self, node: _Node, key: str) -> None:
        """Refuses a line that is to be filled in."""
        if node.value == UNKNOWN:
            question = QUESTIONS.get(key.rpartition("/")[2], "fill in this line")
            self._fail(node, key, f"replace {UNKNOWN}: {question}")

    def _table(self, node: _Node, key: str, known: tuple[str, ...] = ()) -> dict[str, _Node]:
        self._ask(node, key)
        if not isinstance(node.value, dict):
            self._fail(node, key, f"got {_shown(node)}, expected keys with values")
        for name, item in node.value.items():
            if known and name not in known:
                self._fail(item, key, f"unknown key {name!r}; {what_there_is(name, known)}")
        return node.value

    def _text(self, node: _Node, key: str) -> str:
        self._ask(node, key)
        if not isinstance(node.value, str) or not node.value:
            self._fail(node, key, f"got {_shown(node)}, expected a name; put it in quotes")
        self._lines.setdefault(node.value, f"{self._name}: line {node.line}: {key}")
        return node.value

    def _text_of(self, table: Mapping[str, _Node], key: str) -> str:
        return self._text(table[key], key) if key in table else ""

    def _texts(self, node: _Node, key: str) -> tuple[str, ...]:
        items = node.value if isinstance(node.value, list) else [node]
        return tuple(self._text(item, key) for item in items)

    def _one_of(self, node: _Node, key: str, known: tuple[str, ...]) -> Any:
        if self._text(node, key) not in known:
            self._fail(node, key, f"got {node.value!r}, expected {' or '.join(known)}")
        return node.value

    # --- YAML.

    def _load(self, text: str) -> _Node:
        yaml = import_extra("yaml")
        try:
            # Aliases can stand for more than there is memory, tags for objects; the time that
            # the library takes grows with the square of the depth.
            depth = 0
            for token in yaml.scan(text, Loader=yaml.SafeLoader):
                node, kind = _Node(None, token.start_mark.line + 1), type(token).__name__
                depth += kind.endswith("StartToken") - kind.endswith("EndToken")
                if kind in ("AnchorToken", "AliasToken", "TagToken"):
                    self._fail(node, "YAML", "an anchor, an alias or a tag; write plain values")
                if depth > _MAX_DEPTH:
                    self._fail(node, "YAML", f"more than {_MAX_DEPTH} levels")
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            if root is None:
                raise SourceError("empty, expected a layout", file=self._name)
            return self._node(root)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f"line {mark.line + 1}: " if mark else ""
            what = getattr(error, "problem", None) or " ".join(str(error).split())
            raise SourceError(f"{line}not valid YAML: {what}", file=self._name) from error

    def _node(self, node: Any) -> _Node:
        yaml, line = import_extra("yaml"), node.start_mark.line + 1
        if isinstance(node, yaml.SequenceNode):
            return _Node([self._node(item) for item in node.value], line)
        if isinstance(node, yaml.MappingNode):
            return _Node(dict(self._pairs(node)), line)
        kind = node.tag.rpartition(":")[2]
        if kind == "bool":
            return _Node(node.value.lower() in ("yes", "true", "on"), line)
        if kind == "int" and node.value.isdecimal():
            return _Node(int(node.value), line)
        return _Node(node.value, line)

    def _pairs(self, node: Any) -> Iterator[tuple[str, _Node]]:
        seen = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key.value, str) or key.value in seen:
                self._fail(_Node(None, line), str(key.value), "used twice, or no name")
            seen.add(key.value)
            yield key.value, self._node(value)._replace(line=line)


def _shown(node: _Node) -> str:
    if isinstance(node.value, dict | list):
        return "a list" if isinstance(node.value, list) else "keys with values"
    return shorten(repr(node.value), 80)
