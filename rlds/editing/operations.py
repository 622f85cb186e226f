"""The operations of a dataset edit: delete, keep, trim, set, split, merge, convert and others.

Conditions, and numbers of episodes and steps, refer to the dataset before the edit. A recipe is a
list of operations as JSON: `{"do": "delete", "where": "not success"}`.
"""

from __future__ import annotations

import abc
import dataclasses
import importlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from typing_extensions import override

import rlds
from rlds.editing.action_kinds import ActionsAs
from rlds.editing.changes import Added, Dropped, Filled, Renamed, WithMeaning, resolve_alias
from rlds.editing.drafts import Draft
from rlds.editing.metadata_merging import Policy
from rlds.sources import lineage
from rlds.sources.source import FACTS, SourceEpisode, check_flags
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.names import suggest_names

__all__ = [
    "ActionAs",
    "Add",
    "Convert",
    "Delete",
    "Describe",
    "Drop",
    "Fix",
    "Keep",
    "Merge",
    "Operation",
    "Rename",
    "Set",
    "SetMeaning",
    "Split",
    "Trim",
    "as_recipe",
    "from_recipe",
]

_SPLIT_NAME = re.compile(r"[\w-]+")  # It may become the name of a folder.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operation(abc.ABC):
    """An operation of a dataset edit.

    Attributes:
      do: The name of the operation in a recipe.
      rows: In a recipe, digests of the episodes that each condition chose when it was recorded.
    """

    do: ClassVar[str]
    rows: Mapping[str, str] | None = dataclasses.field(default=None, compare=False, repr=False)

    @abc.abstractmethod
    def apply(self, draft: Draft) -> None:
        """Changes the draft.

        Raises:
          ValueError: An argument is wrong.
        """


@dataclasses.dataclass(frozen=True)
class Delete(Operation):
    """Leaves out episodes.

    Attributes:
      where: The episodes to leave out, as a condition over the table of episodes.
      episodes: The episodes to leave out, by their numbers.
    """

    do = "delete"
    where: str | None = None
    episodes: Sequence[int] | None = None

    @override
    def apply(self, draft: Draft) -> None:
        draft.is_kept &= ~draft.chosen(self.do, self.where, self.episodes)


@dataclasses.dataclass(frozen=True)
class Keep(Operation):
    """Keeps the chosen episodes and leaves out the others.

    Attributes:
      where: The episodes to keep, as a condition over the table of episodes.
      episodes: The episodes to keep, by their numbers.
    """

    do = "keep"
    where: str | None = None
    episodes: Sequence[int] | None = None

    @override
    def apply(self, draft: Draft) -> None:
        draft.is_kept &= draft.chosen(self.do, self.where, self.episodes)


@dataclasses.dataclass(frozen=True)
class Trim(Operation):
    """Trims episodes to a range of steps; they end truncated. Video is not encoded again.

    Negative numbers count from the end of each episode, as in slices: `end=-2` leaves out the last
    two steps.

    Attributes:
      begin: The first step to keep.
      end: The step after the last one to keep; all if None.
      where: A condition on the episodes; all if None.
    """

    do = "trim"
    begin: int = 0
    end: int | None = None
    where: str | None = None

    @override
    def apply(self, draft: Draft) -> None:
        begin, end = self.begin, self.end
        if end is not None and (end == 0 or ((begin < 0) == (end < 0) and end <= begin)):
            raise ValueError(f"trim: got {begin}:{end}, which has no step")
        chosen = draft.where_or_all(self.where)
        lengths = draft.num_steps()[chosen] if min(begin, end or 0) < 0 else np.int64(0)
        first, last = (n if n >= 0 else np.maximum(lengths + n, 0) for n in (begin, end or 0))
        draft.begin[chosen] = np.maximum(draft.begin[chosen], first)
        if end is not None:
            before = draft.end[chosen]
            draft.end[chosen] = np.where(before < 0, last, np.minimum(before, last))


@dataclasses.dataclass(frozen=True)
class Set(Operation):
    """Gives a field of episodes, or of all of their steps, a value.

    The step of the final observation has no action, no reward and no discount: placeholders stay.

    Attributes:
      field: The path of the field: `success`, `steps/reward`, `truncated`, `complete`;
        `instruction` stands for the instruction field of any name.
      value: The value.
      where: A condition on the episodes; all if None.
    """

    do = "set"
    field: str
    value: Any
    where: str | None = None

    @override
    def apply(self, draft: Draft) -> None:
        chosen = draft.where_or_all(self.where)
        draft.change(Filled, self.field, self.value, chosen, draft.aliases)


@dataclasses.dataclass(frozen=True)
class Describe(Operation):
    """Sets metadata of the dataset.

    Attributes:
      name: `description`, `homepage`, `citation`, `license`, or a key of the metadata.
      value: The value, in the types of JSON.
    """

    do = "describe"
    name: str
    value: Any

    @override
    def apply(self, draft: Draft) -> None:
        if self.name in FACTS:
            draft.facts[self.name] = str(self.value)
        else:
            draft.metadata[self.name] = lineage.as_json(self.value)


@dataclasses.dataclass(frozen=True)
class SetMeaning(Operation):
    """Declares the meaning of the numbers of a field; the numbers stay as they are.

    Audits, `rlds validate`, merges and `rlds convert --action-as` use it.

    Attributes:
      field: The path of the field.
      kind: The kind of an action, one of `KINDS` of a `Field`: "absolute", "delta", "velocity",
        "scaled"; "" for unknown. None keeps the declared kind.
      unit: The unit; "" and None likewise.
      names: The names of the elements; () and None likewise.
    """

    do = "set_meaning"
    field: str
    kind: str | None = None
    unit: str | None = None
    names: Sequence[str] | None = None

    @override
    def apply(self, draft: Draft) -> None:
        given = {"kind": self.kind, "unit": self.unit, "names": self.names}
        meaning = {name: it for name, it in given.items() if it is not None}
        if not meaning or isinstance(self.names, str):
            raise ValueError("set_meaning: expected a kind, a unit or names (a list)")
        draft.change(WithMeaning, self.field, meaning, draft.aliases)


@dataclasses.dataclass(frozen=True)
class ActionAs(Operation):
    """Converts actions with a declared meaning to deltas of the state, or to absolute targets.

    Attributes:
      kind: "delta" or "absolute".
    """

    do = "action_as"
    kind: str

    @override
    def apply(self, draft: Draft) -> None:
        draft.change(ActionsAs, self.kind)


@dataclasses.dataclass(frozen=True)
class Rename(Operation):
    """Renames a field, or all fields below a path.

    Attributes:
      old: The path, such as `steps/observation/image`.
      new: The new path.
    """

    do = "rename"
    old: str
    new: str

    @override
    def apply(self, draft: Draft) -> None:
        draft.change(Renamed, self.old, self.new, draft.aliases)


@dataclasses.dataclass(frozen=True)
class Drop(Operation):
    """Leaves out a field, or all fields below a path.

    Attributes:
      field: The path.
    """

    do = "drop"
    field: str

    @override
    def apply(self, draft: Draft) -> None:
        draft.change(Dropped, self.field, draft.aliases)


@dataclasses.dataclass(frozen=True)
class Add(Operation):
    """Adds a field that a function computes from each episode.

    Attributes:
      field: The path; a field of the steps if it begins with `steps/`.
      function: A function that takes a `SourceEpisode`, and returns a value, or a column with a row
        for each step; or its name, as `module:function`.
    """

    do = "add"
    field: str
    function: Callable[[SourceEpisode], Any] | str

    @override
    def apply(self, draft: Draft) -> None:
        function = _imported(self.function) if isinstance(self.function, str) else self.function
        path = resolve_alias(self.field, draft.aliases)
        draft.change(Added, path, function, draft.example())


@dataclasses.dataclass(frozen=True)
class Fix(Operation):
    """Recomputes the step flags from step positions; a terminal flag stays in the last step only.

    Attributes:
      where: A condition on the episodes; all if None.
    """

    do = "fix"
    where: str | None = None

    @override
    def apply(self, draft: Draft) -> None:
        added = f"{rlds.STEPS}/{rlds.IS_TERMINAL}" in draft.fields
        for part in draft.parts.values() if not added else ():
            check_flags(part.episodes.source, [rlds.IS_TERMINAL], self.do)
        draft.has_reset_flags |= draft.where_or_all(self.where)


@dataclasses.dataclass(frozen=True)
class Split(Operation):
    """Splits a dataset into several datasets, or into splits if the format has splits.

    Attributes:
      parts: For each part a condition over the table, or a fraction of the episodes; None for the
        remaining episodes. The first condition that holds assigns an episode.
      by: The column whose values name the parts, in place of `parts`.
      groups: The column of the table whose equal values stay together, for fractions.
      seed: The seed of the random split.
    """

    do = "split"
    parts: Mapping[str, str | float | None] = dataclasses.field(default_factory=dict)
    by: str | None = None
    groups: str | None = None
    seed: int = 0

    @override
    def apply(self, draft: Draft) -> None:
        if bool(self.parts) == (self.by is not None):
            raise ValueError(
                "split: expected either parts, or a column (by) whose values name them"
            )
        if self.by is not None:
            names: list[str | None] = _as_split_names(draft.column(self.by))
        elif any(isinstance(part, int | float) for part in self.parts.values()):
            names = self._by_fraction(draft)
        else:
            names = self._by_condition(draft)
        draft.split = objects(names)
        draft.names = list(self.parts) or sorted({name for name in names if name})
        if wrong := [name for name in draft.names if not _SPLIT_NAME.fullmatch(name)]:
            raise ValueError(
                f"split: {wrong[0]!r} cannot name a part: use letters, digits, _ and -"
            )

    def _by_condition(self, draft: Draft) -> list[str | None]:
        names = [*self.parts, None]
        default_parts = [part for part, name in enumerate(self.parts) if self.parts[name] is None]
        parts = np.full(len(draft.is_kept), -1)
        for part, condition in enumerate(self.parts.values()):
            if condition is not None:
                parts[(parts < 0) & draft.chosen(self.do, str(condition), None)] = part
        is_unassigned = (parts < 0) & draft.is_kept
        if is_unassigned.any() and len(default_parts) != 1:
            raise ValueError(
                f"split: {is_unassigned.sum()} episodes are in no part: name one more part, "
                "without a condition, for the rest (None, --split NAME)"
            )
        parts[is_unassigned] = default_parts[0] if default_parts else -1
        return [names[part] for part in parts.tolist()]

    def _by_fraction(self, draft: Draft) -> list[str | None]:
        given = [part for part in self.parts.values() if part is not None]
        if wrong := [part for part in given if isinstance(part, str)]:
            raise ValueError(f"split: got {wrong[0]!r} beside fractions; use two splits")
        default = max(1 - sum(map(float, given)), 0)
        fractions = np.array([default if part is None else part for part in self.parts.values()])
        if (fractions < 0).any() or not np.isclose(fractions.sum(), 1):
            raise ValueError(
                f"split: the fractions {dict(self.parts)} do not add up to 1: name one more part, "
                "without a fraction, for the rest (None, --split NAME)"
            )
        rows = np.flatnonzero(draft.is_kept)
        values = draft.column(self.groups) if self.groups else None
        groups: dict[Any, list[int]] = {}
        for row in rows.tolist():
            groups.setdefault(row if values is None else values[row], []).append(row)
        members = list(groups.values())
        order = np.random.default_rng(self.seed).permutation(len(members))
        ends = np.rint(np.cumsum(fractions) * len(rows))
        names, done = list(self.parts), 0
        part_of: list[str | None] = [None] * len(draft.is_kept)
        for group in order.tolist():
            # The whole group goes to the part of its middle episode.
            middle = done + len(members[group]) / 2
            part = min(int(np.searchsorted(ends, middle, side="right")), len(names) - 1)
            for row in members[group]:
                part_of[row] = names[part]
            done += len(members[group])
        return part_of


_ARGUMENT_VALUES: Mapping[str, tuple[str, ...]] = {
    "missing": ("error", "drop"),
    "duplicates": ("error", "keep", "drop"),
    "metadata": get_args(Policy),
}


@dataclasses.dataclass(frozen=True)
class Merge(Operation):
    """Appends the episodes of other datasets, of the same or of other formats.

    Numbers are widened to a common dtype, texts become `str`, images of different encodings are
    decoded.

    Attributes:
      paths: The datasets.
      fields: The renamed fields: paths in the first dataset, by their paths in the others.
      fills: The values of fields that some datasets lack.
      missing: The treatment of other fields that some datasets lack: "error", or "drop".
      duplicates: The treatment of episodes with the same steps as one of another dataset:
        "drop" leaves the later one out, "keep" keeps both. So does "error", unless the two are in
        different splits.
      metadata: The treatment of different metadata that gives the rows their meaning, such as the
        arguments of an environment: "error"; "first" uses the metadata of the first dataset;
        "episodes" keeps it by episode, in the field `dataset_metadata`, as JSON.
    """

    do = "merge"
    paths: Sequence[str | os.PathLike[str]]
    fields: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fills: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    missing: Literal["error", "drop"] = "error"
    duplicates: Literal["error", "keep", "drop"] = "error"
    metadata: Policy = "error"

    @override
    def apply(self, draft: Draft) -> None:
        if isinstance(self.paths, str | os.PathLike):
            raise ValueError(f"merge: got {os.fspath(self.paths)!r}, expected a list of datasets")
        for name, choices in _ARGUMENT_VALUES.items():
            if (given := getattr(self, name)) not in choices:
                raise ValueError(f"merge: {name}: got {given!r}, expected one of {choices}")
        draft.duplicates = self.duplicates
        drops = self.missing == "drop"
        draft.merge(
            self.paths, self.fields, self.fills, drops_missing=drops, metadata=self.metadata
        )


@dataclasses.dataclass(frozen=True)
class Convert(Operation):
    """Writes another format.

    Attributes:
      format: The format.
      split: The split, or a part of it, such as `train[:10%]`; all if None.
      options: Options of the format.
    """

    do = lineage.CONVERT
    format: str
    split: str | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @override
    def apply(self, draft: Draft) -> None:
        draft.target = self.format, self.options
        if self.split is not None:
            draft.is_kept &= draft.in_split(self.split)


_OPERATIONS: Mapping[str, type[Operation]] = {
    kind.do: kind
    for kind in (
        *(Merge, Delete, Keep, Trim, Set, Describe, SetMeaning),
        *(ActionAs, Rename, Drop, Add, Fix, Split, Convert),
    )
}


def as_recipe(operations: Sequence[Operation]) -> list[dict[str, Any]]:
    """Returns operations in the types of JSON, without arguments that have their defaults.

    >>> as_recipe([Delete(where="not success"), Drop("steps/info")])
    [{'do': 'delete', 'where': 'not success'}, {'do': 'drop', 'field': 'steps/info'}]
    """
    return [{"do": operation.do, **_arguments(operation)} for operation in operations]


def from_recipe(recipe: Any) -> list[Operation]:
    """Returns the operations of a recipe.

    Args:
      recipe: The result of `as_recipe`; or the lineage of a dataset, which has one.

    Raises:
      ValueError: The recipe is invalid; the message has the operation.
    """
    if isinstance(recipe, Mapping):
        recipe = recipe.get("operations")
    if not isinstance(recipe, list):
        raise ValueError("recipe: expected a list of operations, such as {do: delete, where: …}")
    return [_operation(number, each) for number, each in enumerate(recipe)]


# Types of recipe arguments by annotation, as JSON may have other types.
_ARGUMENT_TYPES: Mapping[str, type] = {"str": str, "int": int}


def _operation(number: int, entry: Any) -> Operation:
    if not isinstance(entry, Mapping) or entry.get("do") not in _OPERATIONS:
        name = str(entry.get("do")) if isinstance(entry, Mapping) else repr(entry)
        available = suggest_names(name, _OPERATIONS)
        raise ValueError(f"recipe: operation {number}: no operation {name}; {available}")
    arguments = {name: value for name, value in entry.items() if name != "do"}
    kind = _OPERATIONS[entry["do"]]
    names = [field.name for field in dataclasses.fields(kind)]
    try:
        if unknown := [name for name in arguments if name not in names]:
            raise TypeError(f"no argument {unknown[0]!r}; {suggest_names(str(unknown[0]), names)}")
        for field in dataclasses.fields(kind):
            value = arguments.get(field.name)
            expected = _ARGUMENT_TYPES.get(str(field.type).removesuffix(" | None"), object)
            if value is not None and not isinstance(value, expected):
                raise TypeError(f"{field.name}: got {value!r}, expected {expected.__name__}")
        return kind(**arguments)
    except TypeError as error:
        raise ValueError(f"recipe: operation {number}, {entry['do']}: {error}") from None


def _arguments(operation: Operation) -> dict[str, Any]:
    arguments = {}
    for field in dataclasses.fields(operation):
        value = lineage.as_json(getattr(operation, field.name))
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if value != default:
            arguments[field.name] = value
    return arguments


def _imported(name: str) -> Callable[[SourceEpisode], Any]:
    module, _, function = name.partition(":")
    try:
        add: Callable[[SourceEpisode], Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"add: cannot import {name!r}, expected module:function: {error}"
        ) from None
    return add


def _as_split_names(values: Sequence[Any]) -> list[str | None]:
    """Returns a unique split name for each distinct value of a column."""
    names: dict[Any, str] = {}
    for value in values:
        if value not in names:
            is_whole = isinstance(value, float) and value.is_integer()
            text = str(int(value) if is_whole else value).lower()
            words = "".join(sign if sign.isalnum() else "_" for sign in text)
            name = "_".join(word for word in words.split("_") if word)[:80] or "none"
            names[value] = lineage.free_name(name, names.values(), "{}_{}")
    return [names[value] for value in values]
