"""Layouts: YAML descriptions of the arrays in custom files; see docs/layouts.md."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NoReturn, get_args, get_origin

import msgspec

import rlds
from rlds.formats.rows_source import Order, RowsTable
from rlds.raw_files.untrusted import SourceError, source_errors
from rlds.sources.episode_fields import RESERVED
from rlds.sources.source import require_files
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.names import suggest_names
from rlds_ecosystem.model.nests import conflicts, is_below, root_of
from rlds_ecosystem.model.texts import shorten

__all__ = ["LAYOUT_FILE", "QUESTIONS", "UNKNOWN", "EpisodeEnds", "FileLayout", "LayoutField"]

LAYOUT_FILE = "rlds_layout.yaml"
"""The name of the layout file in a folder of data."""

UNKNOWN = "???"
"""The placeholder of a value that the user has to fill in."""

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
"""Explanations of the keys, for users."""

_EXPECTED_VALUES = {
    "dtype": "a dtype of numbers, such as float32",
    "time_limit": "a number of steps",
    "final_observation": QUESTIONS["final_observation"],
}
_MAX_BYTES, _MAX_DEPTH = 1 << 18, 16
_DERIVED_KEYS = ("text", "lines")

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Texts = tuple[_Text, ...]
_Dtype = Annotated[str, msgspec.Meta(pattern=r"^(bool|u?int(8|16|32|64)|float(16|32|64))\Z")]


class LayoutField(msgspec.Struct, frozen=True, kw_only=True):
    """A field, and its arrays.

    Attributes:
      arrays: The arrays; several arrays are concatenated.
      unit: The unit, or "unknown".
      names: The names of the elements.
      dtype: The dtype; by default, the dtype of the arrays.
      doc: A description.
      of: "transition" if a step field belongs to the transition.
    """

    arrays: _Texts = msgspec.field(name="from")
    unit: _Text = "unknown"
    names: _Texts = ()
    dtype: _Dtype = ""
    doc: _Text = ""
    of: Literal["transition"] | None = None


class EpisodeEnds(msgspec.Struct, frozen=True, kw_only=True):
    """The ends of episodes; one of the attributes is set.

    Attributes:
      one_per: "file", "folder" or "group", if each of them is an episode.
      ends: Flags that are set in the last row of each episode.
      end_rows: The array with the end row of each episode, after its last row.
      lengths: The array with the number of rows of each episode.
      number: The array with the same episode number in all rows of an episode.
    """

    one_per: Literal["file", "folder", "group"] | None = None
    ends: _Texts = ()
    end_rows: _Text = ""
    lengths: _Text = ""
    number: _Text = ""


class FileLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The meaning of the arrays in files, with the keys of docs/layouts.md.

    Attributes:
      text: The layout in YAML.
      lines: The line numbers of keys in the layout, for errors.
    """

    layout: Literal[1]
    files: _Text = ""
    groups: _Text = "*"
    episodes: EpisodeEnds
    order: Order
    final_observation: Literal["last_row", "extra_row", "unknown"] | dict[str, _Text] | None = None
    terminal: bool | _Text
    truncated: _Text = ""
    time_limit: Annotated[int, msgspec.Meta(ge=0)] = 0
    steps: dict[str, LayoutField]
    episode: dict[str, LayoutField] = {}
    leave_out: _Texts = ()
    text: str = ""
    lines: dict[str, str] = {}

    @property
    def next(self) -> Mapping[str, str]:
        """The arrays of the next observations, by the paths of fields."""
        return self.final_observation if isinstance(self.final_observation, dict) else {}

    @property
    def final(self) -> Literal["row", "extra", "next", ""]:
        """The location of the final observation; see `EpisodeRows`."""
        if self.next:
            return "next"
        kinds: Any = {"unknown": "", "extra_row": "extra"}
        return kinds.get(self.final_observation, "row")

    @property
    def table(self) -> RowsTable:
        """The meaning of the rows."""
        # If next observations are stored, all other fields lack a value for the final observation.
        other_fields: Any = "transitions" if self.next else "observations"
        transitions = [path for path, field in self.steps.items() if field.of]
        table = RowsTable({}, self.order, other_fields, transitions)
        paths = filter(table.has_transition_rows, self.steps if self.final == "row" else ())
        return dataclasses.replace(table, leftovers={path: f"leftover/{path}" for path in paths})

    @property
    def arrays(self) -> dict[str, str]:
        """The first key of each array, by the name of the array."""
        episodes, terminal = self.episodes, self.terminal
        names = {
            **{f"steps/{path}": field.arrays for path, field in self.steps.items()},
            **{f"episode/{path}": field.arrays for path, field in self.episode.items()},
            "episodes": (*episodes.ends, episodes.end_rows, episodes.lengths, episodes.number),
            **{f"final_observation/{path}": (name,) for path, name in self.next.items()},
            "terminal": (terminal,) if isinstance(terminal, str) else (),
            "truncated": (self.truncated,),
            "leave_out": self.leave_out,
        }
        return {name: key for key in reversed(names) for name in names[key] if name}

    @classmethod
    def load(cls, layout: str | os.PathLike[str]) -> FileLayout:
        """Loads a layout.

        Args:
          layout: The path of a YAML file, or YAML with several lines.

        Raises:
          FileNotFoundError: There is no such file.
          SourceError: The layout has an error, or a line to fill in; the message has the line.
        """
        text, name = os.fspath(layout), "layout"
        if "\n" not in text:
            name = os.path.basename(text)
            (file,) = require_files(text)
            if file.stat().length > _MAX_BYTES:
                raise SourceError(f"more than {_MAX_BYTES:,} bytes, expected a layout", file=name)
            with source_errors(text):
                text = file.read_bytes().decode()
        return _Parser(name).parse(text)


class _Parser:
    """A parser of layouts.

    Args:
      name: The name of the file, for errors.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: dict[str, int] = {}

    def parse(self, text: str) -> FileLayout:
        layout: FileLayout = self._struct(FileLayout, self._load(text), "")
        self._check(layout)
        lines = {key: f"{self._name}: line {line}: {key}" for key, line in self._lines.items()}
        return msgspec.structs.replace(layout, text=text, lines=lines)

    def _fail(self, location: str, problem: str) -> NoReturn:
        key = location
        while key and key not in self._lines:
            key = key.rpartition("/")[0]
        line = self._lines.get(key, 1)
        raise SourceError(f"line {line}: {location or 'the layout'}: {problem}", file=self._name)

    def _fail_missing(self, location: str) -> NoReturn:
        question = f" ({QUESTIONS[location]})" if location in QUESTIONS else ""
        raise SourceError(f"{location} is missing{question}", file=self._name)

    # --- Keys.

    def _struct(self, kind: Any, content: Any, location: str) -> Any:
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        keys = [key for key in fields if key not in _DERIVED_KEYS]
        values = {}
        for key, value in self._items(content, location):
            if key not in keys:
                self._fail(_join(location, key), f"unknown key; {suggest_names(key, keys)}")
            values[fields[key].name] = self._value(fields[key].type, value, _join(location, key))
        for key in keys:
            if fields[key].required and fields[key].name not in values:
                self._fail_missing(_join(location, key))
        return kind(**values)

    def _value(self, kind: Any, value: Any, location: str) -> Any:
        if kind is EpisodeEnds:
            return self._struct(kind, value, location)
        if get_origin(kind) is dict:
            return {
                path: self._struct(
                    LayoutField, it if isinstance(it, dict) else {"from": it}, f"{location}/{path}"
                )
                for path, it in self._items(value, location)
            }
        if get_origin(kind) is tuple and isinstance(value, str):
            value = [value]
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            literals = [t for t in (kind, *get_args(kind)) if get_origin(t) is Literal]
            choices = " or ".join(map(str, get_args(literals[0]))) if literals else ""
            expected = _EXPECTED_VALUES.get(location.rpartition("/")[2], choices)
            expected = expected or "a name; put it in quotes"
            self._fail(location, f"got {_describe(value)}, expected {expected}")

    def _items(self, content: Any, location: str) -> Any:
        if not isinstance(content, dict):
            self._fail(location, f"got {_describe(content)}, expected keys with values")
        return content.items()

    def _check(self, layout: FileLayout) -> None:
        """Checks combinations of keys."""
        names = [field.name for field in msgspec.structs.fields(EpisodeEnds)]
        if len(keys := [key for key in names if getattr(layout.episodes, key)]) != 1:
            self._fail("episodes", f"got {keys}, expected one of {', '.join(names)}")
        self._check_fields(layout.steps, "steps", rlds.STEP_FLAGS)
        self._check_fields(layout.episode, "episode", (*RESERVED, "leftover"))
        if not layout.steps:
            self._fail("steps", "expected a field at least")
        final = layout.final_observation
        if layout.order != "sar" and final not in (None, "last_row"):
            reason = f"order: {layout.order} needs last_row, or no such line"
            self._fail("final_observation", reason)
        if layout.order == "sar" and final is None:
            self._fail_missing("final_observation")
        if final == "extra_row" and not layout.episodes.one_per:
            self._fail("final_observation", "extra_row needs one_per")
        observations = {path for path in layout.steps if is_below(path, rlds.OBSERVATION)}
        if isinstance(final, dict) and (not final or {*final} != observations):
            reason = f"got arrays for {sorted(final)}, expected all of {sorted(observations)}"
            self._fail("final_observation", reason)

    def _check_fields(
        self, fields: Mapping[str, LayoutField], key: str, reserved: tuple[str, ...]
    ) -> None:
        for path in fields:
            siblings = {other: None for other in fields if other != path}
            if root_of(path) in reserved or conflicts(siblings, path) or not all(path.split("/")):
                problem = "the name is reserved, used twice, or has an empty segment"
                self._fail(_join(key, path), problem)

    # --- YAML.

    def _load(self, text: str) -> Any:
        yaml = import_extra("yaml")
        try:
            # Aliases can expand beyond the memory, tags can create objects, and the run time of
            # the library is quadratic in the depth.
            depth = 0
            for token in yaml.scan(text, Loader=yaml.SafeLoader):
                kind, self._lines = type(token).__name__, {"YAML": token.start_mark.line + 1}
                depth += kind.endswith("StartToken") - kind.endswith("EndToken")
                if kind in ("AnchorToken", "AliasToken", "TagToken"):
                    self._fail("YAML", "an anchor, an alias or a tag; write plain values")
                if depth > _MAX_DEPTH:
                    self._fail("YAML", f"more than {_MAX_DEPTH} levels")
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            if root is None:
                raise SourceError("empty, expected a layout", file=self._name)
            return self._parse_node(root, "")
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f"line {mark.line + 1}: " if mark else ""
            problem = getattr(error, "problem", None) or " ".join(str(error).split())
            raise SourceError(f"{line}not valid YAML: {problem}", file=self._name) from error

    def _parse_node(self, node: Any, location: str) -> Any:
        """Returns the value of a YAML node; keeps the line numbers of keys."""
        if node.id == "sequence":
            return [self._parse_node(item, location) for item in node.value]
        if node.id == "mapping":
            values: dict[str, Any] = {}
            for key, value in node.value:
                key_path = _join(location, str(key.value))
                self._lines[key_path] = key.start_mark.line + 1
                if not isinstance(key.value, str) or key.value in values:
                    self._fail(key_path, "used twice, or no name")
                values[key.value] = self._parse_node(value, key_path)
            return values
        if node.value == UNKNOWN:
            question = QUESTIONS.get(location.rpartition("/")[2], "fill in this line")
            self._fail(location, f"replace {UNKNOWN}: {question}")
        kind = node.tag.rpartition(":")[2]
        if kind == "bool":
            return node.value.lower() in ("yes", "true", "on")
        return int(node.value) if kind == "int" and node.value.isdecimal() else node.value


def _join(location: str, key: str) -> str:
    return f"{location}/{key}" if location else key


def _describe(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "keys with values"
    return shorten(repr(value), 80)
