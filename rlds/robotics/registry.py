"""The registry of robot datasets: roles, units and frames of fields, with references."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rlds.robotics.expressions import Piece, parse
from rlds_ecosystem.model.names import nearest

__all__ = [
    "CONFIDENCE",
    "OWN",
    "DatasetMeaning",
    "Dimension",
    "Disagreement",
    "Gripper",
    "find_meaning",
    "meaning_from",
    "meaning_of",
    "register",
    "registered_datasets",
    "similar_dataset",
]

CONFIDENCE = {
    "measured": "compared with the data",
    "stated": "stated by the authors or publishers of the dataset",
    "used": "assumed by training code",
    "disputed": "publications disagree",
    "user": "given by you",
}
"""The levels of confidence in a statement, with descriptions."""

OWN = "rlds_robotics"
"""The key of the meaning of the fields in the metadata of a dataset."""

_TABLE_FILE = Path(__file__).with_name("datasets.json")
_GRIPPER = "gripper"
_JOINTS = tuple(f"joint_{index}" for index in range(1, 8))
_ARMS = tuple(f"{arm}_{name}" for arm in ("left", "right") for name in (*_JOINTS[:6], _GRIPPER))
_POSE = ("x", "y", "z", "roll", "pitch", "yaw")

# The elements of the standard actions for training policies.
ACTIONS = {
    "EEF_POS": (*_POSE, _GRIPPER),
    "JOINT_POS": (*_JOINTS, _GRIPPER),
    "JOINT_POS_BIMANUAL": _ARMS,
    "JOINT_POS_BIMANUAL_NAV": (*_ARMS, "base_linear", "base_angular"),
}
STATES = {
    "POS_EULER": (*_POSE, "pad", _GRIPPER),
    "POS_QUAT": ("x", "y", "z", "qx", "qy", "qz", "qw", _GRIPPER),
    "JOINT": (*_JOINTS, _GRIPPER),
    "JOINT_BIMANUAL": _ARMS,
}
# Elements of an action that do not move the robot.
_NO_MOVEMENT = ("terminate", "other")


@dataclasses.dataclass(frozen=True)
class Dimension:
    """An element of an action or of a state.

    Attributes:
      name: The name of the element, such as "x" or "left_gripper".
      field: The path of the step field with the element.
      element: The index in the field; negative indices count from the end.
      quantity: The measured quantity, such as "position_delta".
      unit: The unit; empty if it is not documented.
      frame: The reference frame; empty if it is not documented.
      low: The smallest value; None without a limit.
      high: The largest value; None without a limit.
      doc: A description.
      confidence: The confidence in these attributes, one of `CONFIDENCE`.
      assumed: The attributes that are assumed, without a reference.
    """

    name: str
    field: str
    element: int = 0
    quantity: str = ""
    unit: str = ""
    frame: str = ""
    low: float | None = None
    high: float | None = None
    doc: str = ""
    confidence: str = "used"
    assumed: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The kind of the values, one of `rlds_ecosystem.model.fields.KINDS`; empty if unknown."""
        return _kind_of(self.quantity)

    @property
    def range(self) -> str:
        """The smallest and the largest value, as text."""
        if self.low is None or self.high is None:
            return ""
        return f"{self.low:g} to {self.high:g}"

    def __str__(self) -> str:
        unit = f"in {self.unit}" if self.unit else ""
        frame = f"frame: {self.frame}" if self.frame else ""
        details = "; ".join(filter(None, (self.range, unit, frame, self.doc)))
        confidence = ", ".join([self.confidence, *(f"{name} assumed" for name in self.assumed)])
        return f"{self.name} ({self.field}[{self.element}]): {details} ({confidence})"


@dataclasses.dataclass(frozen=True)
class Gripper:
    """The meaning of the gripper command.

    Attributes:
      meaning: "absolute" if a value is the opening, "relative" if a value is a change of the
        opening, "none" if there is no gripper command, "unknown" if it is not documented.
      open: The value of an open gripper, or of a command to open it.
      closed: The value of a closed gripper, or of a command to close it.
      rules: The rules that convert a value to 1 for open and 0 for closed; see `standard_columns`.
      doc: Further notes.
    """

    meaning: Literal["absolute", "relative", "none", "unknown"] = "unknown"
    open: float | None = None
    closed: float | None = None
    rules: tuple[str, ...] = ()
    doc: str = ""

    def __str__(self) -> str:
        if self.open is None or self.closed is None:
            texts = {"none": "no command", "unknown": "the open value is not documented"}
            return self.doc or texts.get(self.meaning, self.meaning)
        if self.meaning == "relative":
            return f"{self.closed:+g} closes, {self.open:+g} opens, 0 keeps it"
        return f"{self.open:g} is open, {self.closed:g} is closed"


@dataclasses.dataclass(frozen=True)
class Disagreement:
    """A disagreement between published sources.

    Attributes:
      about: The subject: "gripper", "cameras", "language" and so on.
      said: The statements, by source.
    """

    about: str
    said: Mapping[str, str]

    def __str__(self) -> str:
        statements = "; ".join(f"{name}: {statement}" for name, statement in self.said.items())
        return f"{self.about}: {statements}"


@dataclasses.dataclass(frozen=True)
class DatasetMeaning:
    """The meaning of the fields of a dataset.

    Attributes:
      name: The name of the dataset.
      aliases: Other names of the dataset.
      robot: The robot.
      control_hz: The steps per second; None if unknown.
      cameras: The field of each camera: "primary", "secondary", "wrist".
      depth: The field of the depth of each camera.
      action: The elements of all fields of the stored action, in order.
      action_encoding: The standard of the converted action, one of `ACTIONS`.
      standard_action: The conversion of the action, see `standard_columns`; empty for none.
      state: The elements of the stored state in the standard state.
      state_encoding: The standard of the converted state, one of `STATES`.
      standard_state: The conversion of the state.
      kept: The range of steps with a standard action: the first step, and the end of the slice.
      gripper: The meaning of the gripper command.
      language: The fields of the instruction.
      defects: Known defects, and surprises.
      disagreements: Disagreements between published sources.
      confidence: The confidence in this entry, one of `CONFIDENCE`.
      sources: References.
    """

    name: str
    aliases: tuple[str, ...] = ()
    robot: str = ""
    control_hz: float | None = None
    cameras: Mapping[str, str] = dataclasses.field(default_factory=dict)
    depth: Mapping[str, str] = dataclasses.field(default_factory=dict)
    action: tuple[Dimension, ...] = ()
    action_encoding: str = ""
    standard_action: tuple[str, ...] = ()
    state: tuple[Dimension, ...] = ()
    state_encoding: str = ""
    standard_state: tuple[str, ...] = ()
    kept: tuple[int, int | None] = (0, None)
    gripper: Gripper = dataclasses.field(default_factory=Gripper)
    language: tuple[str, ...] = ()
    defects: tuple[str, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    confidence: str = "used"
    sources: tuple[str, ...] = ()

    @property
    def action_fields(self) -> tuple[str, ...]:
        """The fields of the action that move the robot."""
        moving = (d.field for d in self.action if d.quantity not in _NO_MOVEMENT)
        return tuple(dict.fromkeys(moving))

    @property
    def state_fields(self) -> tuple[str, ...]:
        """The fields of the state."""
        pieces = map(parse, self.standard_state)
        return tuple(dict.fromkeys(piece.path for piece in pieces if piece.path))

    @property
    def action_mask(self) -> tuple[bool, ...]:
        """A mask of the elements of the standard action to normalize: all except the grippers."""
        return tuple(not name.endswith(_GRIPPER) for name in self._standard_names)

    @property
    def absolute_action_mask(self) -> tuple[bool, ...]:
        """A mask of the absolute elements of the standard action, for OpenVLA."""
        are_absolute = "BIMANUAL" in self.action_encoding
        return tuple(are_absolute or name.endswith(_GRIPPER) for name in self._standard_names)

    @property
    def _standard_names(self) -> tuple[str, ...]:
        return ACTIONS.get(self.action_encoding, ()) if self.standard_action else ()

    def names_of(self, field: str, length: int) -> tuple[str, ...] | None:
        """Returns the names of the elements of a field; None if one is unknown."""
        names: dict[int, str] = {}
        for dimension in (*self.action, *self.state):
            if dimension.field == field and -length <= dimension.element < length:
                names.setdefault(dimension.element % length, dimension.name)
        if not length or len(names) < length:
            return None
        return tuple(names[element] for element in range(length))

    def unit_of(self, field: str) -> str:
        """Returns the common unit of all elements of a field; empty without one."""
        units = {d.unit for d in (*self.action, *self.state) if d.field == field}
        return units.pop() if len(units) == 1 else ""

    def kind_of(self, field: str) -> str:
        """Returns the kind of the values of an action, one of `rlds_ecosystem.model.fields.KINDS`.

        Empty if it is unknown, or if the elements that move the robot have several kinds.
        """
        moving = (d.quantity for d in self.action if d.field == field)
        kinds = {_kind_of(kind) for kind in moving if kind not in (*_NO_MOVEMENT, _GRIPPER)}
        return kinds.pop() if len(kinds) == 1 else ""


def _kind_of(quantity: str) -> str:
    if quantity in ("position", "joint_position", "rotation"):
        return "absolute"
    suffix = quantity.rpartition("_")[2]
    return suffix if suffix in ("delta", "velocity") else ""


def meaning_of(name: str, metadata: Mapping[str, Any] | None = None) -> DatasetMeaning:
    """Returns the meaning of the fields of a dataset.

    Args:
      name: The name of the dataset, with or without config and version.
      metadata: The metadata of the dataset. The metadata entry "rlds_robotics" takes precedence
        over the registry, and has the form of an entry of `register`.

    Raises:
      KeyError: The dataset is not registered; the message lists similar names.
      ValueError: The metadata is invalid.

    >>> bridge = meaning_of("bridge_dataset/1.0.0")
    >>> bridge.action[6].name, bridge.action[6].range, str(bridge.gripper)
    ('gripper', '0 to 1', '1 is open, 0 is closed')
    """
    meaning = find_meaning(name, metadata)
    if meaning is not None:
        return meaning
    near = " or ".join(map(repr, nearest(name.partition("/")[0], _index_names())[:3]))
    hint = f"; did you mean {near}? If not, d" if near else ". D"
    raise KeyError(
        f"no dataset {name!r} is registered{hint}escribe its fields with rlds.robotics.register"
    )


def find_meaning(name: str, metadata: Mapping[str, Any] | None = None) -> DatasetMeaning | None:
    """Returns the meaning of the fields of a dataset; None if it is unknown. See `meaning_of`."""
    entry = (metadata or {}).get(OWN)
    dataset = _find_dataset(name)
    if entry is None:
        return None if dataset is None else _read_meaning(dataset)
    if not isinstance(entry, Mapping):
        raise ValueError(f"the metadata of {name}: {OWN} is {entry!r:.100}, expected an object")
    entry = {**_entries().get(dataset or "", {}), **_mark_as_user(entry)}
    return meaning_from(dataset or name, entry)


def registered_datasets() -> list[str]:
    """Returns the names of the registered datasets.

    >>> len(registered_datasets()) >= 60, "droid" in registered_datasets()
    (True, True)
    """
    return list(_entries())


def similar_dataset(name: str) -> str | None:
    """Returns the registered dataset with a name similar to a misspelled name; None for none."""
    if _find_dataset(name) is not None:
        return None if name in _index_names() else _find_dataset(name)
    near = difflib.get_close_matches(name, _index_names(), n=1, cutoff=0.9)
    return _index_names()[near[0]] if near else None


def register(entries: Mapping[str, Any] | str | os.PathLike[str]) -> None:
    """Adds or changes entries of datasets in the registry of this process.

    Args:
      entries: The entries by the name of the dataset, or the path of a JSON or TOML file of
        entries; see `docs/robotics_oxe.md`. Omitted keys of an entry keep their values.

    Raises:
      ValueError: An entry is invalid; the message names it.

    >>> register({"my_arm": {"action": {"action[0:3]": "position_delta", "action[3]": "gripper"}}})
    >>> [dimension.name for dimension in meaning_of("my_arm").action]
    ['x', 'y', 'z', 'gripper']
    """
    if not isinstance(entries, Mapping):
        entries = _read(Path(entries))
    added = {}
    for name, entry in entries.items():
        if not isinstance(entry, Mapping):
            raise ValueError(f"{name}: got {entry!r:.100}, expected an object")
        table_name = _find_dataset(name) or name
        added[table_name] = {**_entries().get(table_name, {}), **_mark_as_user(entry)}
        meaning_from(table_name, added[table_name])
    _entries().update(added)
    _read_meaning.cache_clear()
    _index_names.cache_clear()


def _mark_as_user(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Sets the confidence of an entry to "user"."""
    return {"confidence": "user", "assumed": [], **entry}


def _read(path: Path) -> Mapping[str, Any]:
    try:
        if path.suffix == ".toml":
            import tomllib

            return tomllib.loads(path.read_text(encoding="utf-8"))
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        kind = path.suffix.removeprefix(".").upper() or "JSON"
        raise ValueError(f"{path}: expected {kind}: {error}") from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{path}: expected an object with the names of datasets")
    return content


@functools.cache
def _read_table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = json.loads(_TABLE_FILE.read_text(encoding="utf-8"))
    return table


@functools.cache
def _entries() -> dict[str, Any]:
    """Returns the entries by dataset: of the table, and registered by the user."""
    return dict(_read_table()["datasets"])


@functools.cache
def _index_names() -> dict[str, str]:
    """Returns the names of datasets by name and alias."""
    entries = _entries()
    aliases = {alias: name for name in entries for alias in entries[name].get("aliases", ())}
    return {**aliases, **{name: name for name in entries}}


def _match_key(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def _find_dataset(name: str) -> str | None:
    """Returns the registered dataset of a name; the name may include a config and a version."""
    names = _index_names()
    candidates = [name, *reversed(name.split("/"))] if "/" in name else [name]
    for candidate in candidates:
        if candidate in names:
            return names[candidate]
    keys = {_match_key(table_name): dataset for table_name, dataset in names.items()}
    return next(
        (keys[_match_key(candidate)] for candidate in candidates if _match_key(candidate) in keys),
        None,
    )


@functools.cache
def _read_meaning(name: str) -> DatasetMeaning:
    return meaning_from(name, _entries()[name])


# --- Parsing of entries.

# The largest number of elements of an action; an untrusted file may declare any.
_MAX_ELEMENTS = 4096
_ENTRY_VALUES = ("robot", "control_hz", "cameras", "depth", "action_encoding", "state_encoding")
_ENTRY_LISTS = ("aliases", "standard_action", "language", "defects", "sources")


# The schemas of values, see `_matches`.
_FLOAT, _INTEGER, _TEXTS_BY_NAME = (int, float, None), (int, None), {"": str}
_ACTION_SCHEMA = {
    **dict.fromkeys(("is", "part", "doc", "unit", "frame", "confidence"), str),
    **dict.fromkeys(("low", "high"), _FLOAT),
    "size": _INTEGER,
}
_ENTRY_SCHEMA: Mapping[str, Any] = {
    **dict.fromkeys(("robot", "action_encoding", "state_encoding", "frame", "confidence"), str),
    **{key: [str] for key in (*_ENTRY_LISTS, "state", "assumed")},
    **dict.fromkeys(("cameras", "depth", "unit"), _TEXTS_BY_NAME),
    "control_hz": _FLOAT,
    "action": {"": (str, _ACTION_SCHEMA)},
    "gripper": {
        "meaning": ("absolute", "relative", "none", "unknown"),
        "doc": str,
        **dict.fromkeys(("open", "closed"), _FLOAT),
    },
    "disagreements": [{"about": str, "said": _TEXTS_BY_NAME}],
    "kept": [_INTEGER, _INTEGER],
}
_REQUIRED_KEYS = {"about", "said"}


def _matches(value: Any, schema: Any) -> bool:
    """True if a JSON value matches a schema.

    Args:
      value: The value.
      schema: A type, a value, or a tuple of alternative schemas. A list of one schema matches lists
        of any length; a longer list matches lists of its length. A dict has the schemas of the
        values by key; the empty key matches all other keys.
    """
    if isinstance(schema, tuple):
        return any(_matches(value, alternative) for alternative in schema)
    if isinstance(schema, list):
        if not isinstance(value, Sequence) or isinstance(value, str):
            return False
        schemas = schema * len(value) if len(schema) == 1 else schema
        return len(value) == len(schemas) and all(map(_matches, value, schemas))
    if isinstance(schema, dict):
        return (
            isinstance(value, Mapping)
            and all(key in value for key in _REQUIRED_KEYS & schema.keys())
            and all(_matches(value[key], schema.get(key, schema.get("", ()))) for key in value)
        )
    if isinstance(schema, type):
        return isinstance(value, schema) and not isinstance(value, bool)
    return bool(value == schema)


def meaning_from(name: str, entry: Mapping[str, Any]) -> DatasetMeaning:
    """Returns the meaning in an entry of the registry.

    Raises:
      ValueError: The entry is invalid.
    """
    try:
        return _parse_entry(name, entry)
    except ValueError as error:
        raise ValueError(f"the entry of the dataset {name!r}: {error}") from error


def _parse_entry(name: str, entry: Mapping[str, Any]) -> DatasetMeaning:
    for key, value in entry.items():
        if key not in _ENTRY_SCHEMA:
            raise ValueError(f"got {key!r}, expected one of {', '.join(_ENTRY_SCHEMA)}")
        if not _matches(value, _ENTRY_SCHEMA[key]):
            raise ValueError(f"{key}: {value!r:.200} is not valid")
    for key, choices in (
        ("confidence", CONFIDENCE),
        ("action_encoding", ACTIONS),
        ("state_encoding", STATES),
    ):
        if entry.get(key) and entry[key] not in choices:
            raise ValueError(f"{key}: got {entry[key]!r}, expected one of {', '.join(choices)}")
    standard_action = tuple(entry.get("standard_action", ()))
    rules = parse(standard_action[-1]).rules if standard_action else ()
    gripper = Gripper(**entry.get("gripper", {}), rules=rules)
    standard_state = tuple(entry.get("state", ()))
    begin, end = entry.get("kept", (0, None))
    lists: dict[str, Any] = {key: tuple(entry[key]) for key in _ENTRY_LISTS if key in entry}
    return DatasetMeaning(
        name=name,
        **{key: entry[key] for key in _ENTRY_VALUES if key in entry},
        **lists,
        action=tuple(_parse_action(entry, gripper)),
        state=tuple(_parse_state(standard_state, entry)),
        standard_state=standard_state,
        kept=(begin, end),
        gripper=gripper,
        disagreements=tuple(Disagreement(**fields) for fields in entry.get("disagreements", ())),
        confidence=entry.get("confidence", "used"),
    )


def _parse_action(entry: Mapping[str, Any], gripper: Gripper) -> Iterator[Dimension]:
    quantities = _read_table()["quantities"]
    for text, value in entry.get("action", {}).items():
        piece = parse(text)
        elements: dict[str, Any] = {"is": value} if isinstance(value, str) else dict(value)
        name: Any = elements.get("is")
        if name not in quantities:
            raise ValueError(f"{text} is {name!r}, expected one of {list(quantities)}")
        quantity = quantities[name]
        names = _expand_names(quantity["names"], piece, elements.get("size"))
        prefix = f"{elements['part']}_" if "part" in elements else ""
        for offset, element in enumerate(names):
            yield Dimension(
                name=prefix + element,
                field=piece.path,
                element=(piece.begin or 0) + offset,
                quantity=name,
                **_parse_attributes(entry, elements, quantity, gripper),
            )


def _parse_attributes(
    entry: Mapping[str, Any],
    elements: Mapping[str, Any],
    quantity: Mapping[str, Any],
    gripper: Gripper,
) -> dict[str, Any]:
    """Returns the unit, limits and confidence of the elements of a piece of the action."""
    low, high = elements.get("low"), elements.get("high")
    doc = elements.get("doc") or quantity["doc"]
    is_spatial = "unit" in quantity or elements["is"].endswith("velocity")
    unit = entry.get("unit", {}).get(quantity.get("unit"), "")
    if elements["is"] == _GRIPPER:
        doc = elements.get("doc") or str(gripper)
        if gripper.open is not None and gripper.closed is not None:
            low, high = sorted((gripper.open, gripper.closed))
    return {
        "unit": elements.get("unit", unit),
        "frame": elements.get("frame", entry.get("frame", "") if is_spatial else ""),
        "low": low,
        "high": high,
        "doc": doc,
        "confidence": elements.get("confidence", entry.get("confidence", "used")),
        "assumed": tuple(entry.get("assumed", ())) if unit else (),
    }


def _expand_names(names: str | Sequence[str], piece: Piece, size: int | None) -> list[str]:
    """Returns the names of the elements of a piece."""
    size = piece.size or size
    if size is not None and not 0 < size <= _MAX_ELEMENTS:
        raise ValueError(f"{piece.path}: {size} elements, expected 1 to {_MAX_ELEMENTS}")
    if not isinstance(names, str):
        if size not in (None, len(names)):
            actual = f"{piece.path} has {size} elements"
            raise ValueError(f"{actual}, expected {len(names)}: {', '.join(names)}")
        return list(names)
    if size is None:
        size = 1
    return [names] if size == 1 else [f"{names}_{index}" for index in range(1, size + 1)]


def _parse_state(standard: Sequence[str], entry: Mapping[str, Any]) -> Iterator[Dimension]:
    """Yields the elements of the stored state, named by their positions in the standard state."""
    names = STATES.get(entry.get("state_encoding", ""), ())
    pieces = [parse(text) for text in standard]
    if len(pieces) > _MAX_ELEMENTS or any((piece.size or 0) > _MAX_ELEMENTS for piece in pieces):
        raise ValueError(f"the state has more than {_MAX_ELEMENTS} elements")
    unsized = [piece for piece in pieces if piece.size is None]
    remaining = len(names) - sum(piece.size or 0 for piece in pieces)
    if len(unsized) > 1 or (unsized and remaining < 1) or (not unsized and remaining):
        return
    units, begin = entry.get("unit", {}), 0
    for piece in pieces:
        size = piece.size or remaining
        for offset in range(size if piece.path else 0):
            name = names[begin + offset]
            kind = "position" if name in _POSE[:3] else "rotation"
            is_spatial = name in _POSE or name.startswith("joint")
            unit = units.get(kind, "") if is_spatial else ""
            yield Dimension(
                name=name,
                field=piece.path,
                element=(piece.begin or 0) + offset,
                quantity="state",
                unit=unit,
                frame=entry.get("frame", "") if name in _POSE else "",
                confidence="user" if entry.get("confidence") == "user" else "used",
                assumed=tuple(entry.get("assumed", ())) if unit else (),
            )
        begin += size
