"""The operations of a dataset edit, such as delete, keep, trim, set, split, merge and convert.

Conditions and the indices of episodes and steps refer to the dataset before the edit. A recipe is a
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
from rlds.editing.action_kinds import ActionsView
from rlds.editing.changes import AddView, DropView, FillView, MeaningView, RenameView, resolve_alias
from rlds.editing.drafts import Draft
from rlds.editing.metadata_merging import Policy
from rlds.sources import lineage
from rlds.sources.source import INFO_TEXTS, SourceEpisode, check_flags
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

_SPLIT_NAME = re.compile(r"[\w-]+")  # A split name may become a folder name.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operation(abc.ABC):
    """An operation of a dataset edit.

    Attributes:
      do: The name of the operation in a recipe.
      rows: In a recipe, digests of the episodes that fulfilled each condition on recording.
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
      episodes: The indices of the episodes to leave out.
    """

    do = "delete"
    where: str | None = None
    episodes: Sequence[int] | None = None

    @override
    def apply(self, draft: Draft) -> None:
        draft.is_kept &= ~draft.select(self.do, self.where, self.episodes)


@dataclasses.dataclass(frozen=True)
class Keep(Operation):
    """Keeps some episodes and leaves out the rest.

    Attributes:
      where: The episodes to keep, as a condition over the table of episodes.
      episodes: The indices of the episodes to keep.
    """

    do = "keep"
    where: str | None = None
    episodes: Sequence[int] | None = None

    @override
    def apply(self, draft: Draft) -> None:
        draft.is_kept &= draft.select(self.do, self.where, self.episodes)


@dataclasses.dataclass(frozen=True)
class Trim(Operation):
    """Trims episodes to a range of steps; they are then truncated. Video is not re-encoded.

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
        mask = draft.where_or_all(self.where)
        lengths = draft.num_steps()[mask] if min(begin, end or 0) < 0 else np.int64(0)
        start, stop = (n if n >= 0 else np.maximum(lengths + n, 0) for n in (begin, end or 0))
        draft.begin[mask] = np.maximum(draft.begin[mask], start)
        if end is not None:
            old_end = draft.end[mask]
            draft.end[mask] = np.where(old_end < 0, stop, np.minimum(old_end, stop))


@dataclasses.dataclass(frozen=True)
class Set(Operation):
    """Sets a field of episodes, or of all of their steps, to a value.

    The placeholders for action, reward and discount in the step of the final observation are kept.

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
        mask = draft.where_or_all(self.where)
        draft.change(FillView, self.field, self.value, mask, draft.aliases)


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
        if self.name in INFO_TEXTS:
            draft.info_changes[self.name] = str(self.value)
        else:
            draft.metadata[self.name] = lineage.as_json(self.value)


@dataclasses.dataclass(frozen=True)
class SetMeaning(Operation):
    """Declares the meaning of the numbers of a field; the numbers do not change.

    Audits, `rlds validate`, merges and `rlds convert --action-as` use it.

    Attributes:
      field: The path of the field.
      kind: The kind of an action, one of `KINDS` of a `Field`: "absolute", "delta", "velocity",
        "scaled"; "" for unknown. None keeps the declared kind.
      unit: The unit; "" for unknown, None to keep the declared unit.
      names: The names of the elements; () for unknown, None to keep the declared names.
    """

    do = "set_meaning"
    field: str
    kind: str | None = None
    unit: str | None = None
    names: Sequence[str] | None = None

    @override
    def apply(self, draft: Draft) -> None:
        arguments = {"kind": self.kind, "unit": self.unit, "names": self.names}
        meaning = {name: value for name, value in arguments.items() if value is not None}
        if not meaning or isinstance(self.names, str):
            raise ValueError("set_meaning: expected a kind, a unit or names (a list)")
        draft.change(MeaningView, self.field, meaning, draft.aliases)


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
        draft.change(ActionsView, self.kind)


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
        draft.change(RenameView, self.old, self.new, draft.aliases)


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
        draft.change(DropView, self.field, draft.aliases)


@dataclasses.dataclass(frozen=True)
class Add(Operation):
    """Adds a field that a function computes from each episode.

    Attributes:
      field: The path; a field of the steps if it begins with `steps/`.
      function: A function, or its name as `module:function`. The function takes a `SourceEpisode`,
        and returns a value, or a column with a row for each step.
    """

    do = "add"
    field: str
    function: Callable[[SourceEpisode], Any] | str

    @override
    def apply(self, draft: Draft) -> None:
        function = self.function
        function = _import_function(function) if isinstance(function, str) else function
        path = resolve_alias(self.field, draft.aliases)
        draft.change(AddView, path, function, draft.example())


@dataclasses.dataclass(frozen=True)
class Fix(Operation):
    """Recomputes the step flags from step positions; only the last step keeps a terminal flag.

    Attributes:
      where: A condition on the episodes; all if None.
    """

    do = "fix"
    where: str | None = None

    @override
    def apply(self, draft: Draft) -> None:
        added = f"{rlds.STEPS}/{rlds.IS_TERMINAL}" in draft.fields
        for dataset in draft.datasets.values() if not added else ():
            check_flags(dataset.episodes.source, [rlds.IS_TERMINAL], self.do)
        draft.has_reset_flags |= draft.where_or_all(self.where)


@dataclasses.dataclass(frozen=True)
class Split(Operation):
    """Splits a dataset into several datasets, or into splits if the format has splits.

    Attributes:
      parts: For each new split a condition over the table, or a fraction of the episodes; None for
        the remaining episodes. An episode is in the first split whose condition it fulfils.
      by: The column whose values name the splits, instead of `parts`.
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
            raise ValueError("split: expected either parts, or a column (by) that names them")
        if self.by is not None:
            names: list[str | None] = _as_split_names(draft.column(self.by))
        elif any(isinstance(rule, int | float) for rule in self.parts.values()):
            names = self._split_by_fraction(draft)
        else:
            names = self._split_by_condition(draft)
        draft.split = objects(names)
        draft.names = list(self.parts) or sorted({name for name in names if name})
        if wrong := [name for name in draft.names if not _SPLIT_NAME.fullmatch(name)]:
            raise ValueError(f"split: {wrong[0]!r} cannot name a split: use letters, digits, _, -")

    def _split_by_condition(self, draft: Draft) -> list[str | None]:
        names = [*self.parts, None]
        defaults = [split for split, name in enumerate(self.parts) if self.parts[name] is None]
        splits = np.full(len(draft.is_kept), -1)
        for split, condition in enumerate(self.parts.values()):
            if condition is not None:
                splits[(splits < 0) & draft.select(self.do, str(condition), None)] = split
        is_unassigned = (splits < 0) & draft.is_kept
        if is_unassigned.any() and len(defaults) != 1:
            raise ValueError(
                f"split: {is_unassigned.sum()} episodes are in no split: name one more split, "
                "without a condition, for the remaining episodes (None, --split NAME)"
            )
        splits[is_unassigned] = defaults[0] if defaults else -1
        return [names[split] for split in splits.tolist()]

    def _split_by_fraction(self, draft: Draft) -> list[str | None]:
        entries = [entry for entry in self.parts.values() if entry is not None]
        if conditions := [entry for entry in entries if isinstance(entry, str)]:
            problem = f"got {conditions[0]!r} and fractions"
            raise ValueError(f"split: {problem}; use two split operations")
        default = max(1 - sum(map(float, entries)), 0)
        fractions = np.array([default if f is None else f for f in self.parts.values()])
        if (fractions < 0).any() or not np.isclose(fractions.sum(), 1):
            raise ValueError(
                f"split: the fractions {dict(self.parts)} do not add up to 1: name one more split, "
                "without a fraction, for the remaining episodes (None, --split NAME)"
            )
        rows = np.flatnonzero(draft.is_kept)
        values = draft.column(self.groups) if self.groups else None
        groups: dict[Any, list[int]] = {}
        for row in rows.tolist():
            groups.setdefault(row if values is None else values[row], []).append(row)
        members = list(groups.values())
        order = np.random.default_rng(self.seed).permutation(len(members))
        split_ends = np.rint(np.cumsum(fractions) * len(rows))
        names, num_assigned = list(self.parts), 0
        splits: list[str | None] = [None] * len(draft.is_kept)
        for group in order.tolist():
            # A group is in the split of its middle episode.
            middle = num_assigned + len(members[group]) / 2
            split = min(int(np.searchsorted(split_ends, middle, side="right")), len(names) - 1)
            for row in members[group]:
                splits[row] = names[split]
            num_assigned += len(members[group])
        return splits


_ARGUMENT_VALUES: Mapping[str, tuple[str, ...]] = {
    "missing": ("error", "drop"),
    "duplicates": ("error", "keep", "drop"),
    "metadata": get_args(Policy),
}


@dataclasses.dataclass(frozen=True)
class Merge(Operation):
    """Appends the episodes of further datasets of any format.

    Numbers are widened to a common dtype, texts become `str`, images of different encodings are
    decoded.

    Attributes:
      paths: The datasets.
      fields: The renamed fields: paths in the first dataset, by the paths in the further datasets.
      fills: The values of fields that some datasets lack.
      missing: The treatment of missing fields without a value in `fills`: "error", or "drop".
      duplicates: The treatment of episodes with equal steps in two datasets: "drop" leaves out the
        later one, "keep" keeps both, "error" keeps both in the same split only.
      metadata: The treatment of different metadata about the meaning of the rows, such as the
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
            if (value := getattr(self, name)) not in choices:
                raise ValueError(f"merge: {name}: got {value!r}, expected one of {choices}")
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
      split: The split, or a split expression such as `train[:10%]`; all if None.
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
    """Returns operations in the types of JSON, without default arguments.

    >>> as_recipe([Delete(where="not success"), Drop("steps/info")])
    [{'do': 'delete', 'where': 'not success'}, {'do': 'drop', 'field': 'steps/info'}]
    """
    return [{"do": operation.do, **_collect_arguments(operation)} for operation in operations]


def from_recipe(recipe: Any) -> list[Operation]:
    """Returns the operations of a recipe.

    Args:
      recipe: The result of `as_recipe`; or the lineage of a dataset, which contains a recipe.

    Raises:
      ValueError: The recipe is invalid; the message has the operation.
    """
    if isinstance(recipe, Mapping):
        recipe = recipe.get("operations")
    if not isinstance(recipe, list):
        raise ValueError("recipe: expected a list of operations, such as {do: delete, where: …}")
    return [_parse_operation(position, entry) for position, entry in enumerate(recipe)]


# Types of recipe arguments by annotation, as JSON may have other types.
_ARGUMENT_TYPES: Mapping[str, type] = {"str": str, "int": int}


def _parse_operation(position: int, entry: Any) -> Operation:
    if not isinstance(entry, Mapping) or entry.get("do") not in _OPERATIONS:
        name = str(entry.get("do")) if isinstance(entry, Mapping) else repr(entry)
        available = suggest_names(name, _OPERATIONS)
        raise ValueError(f"recipe: operation {position}: no operation {name}; {available}")
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
        raise ValueError(f"recipe: operation {position}, {entry['do']}: {error}") from None


def _collect_arguments(operation: Operation) -> dict[str, Any]:
    arguments = {}
    for field in dataclasses.fields(operation):
        value = lineage.as_json(getattr(operation, field.name))
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if value != default:
            arguments[field.name] = value
    return arguments


def _import_function(name: str) -> Callable[[SourceEpisode], Any]:
    module, _, function = name.partition(":")
    try:
        add: Callable[[SourceEpisode], Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"add: {name!r} is not importable, expected module:function: {error}"
        ) from None
    return add


def _as_split_names(values: Sequence[Any]) -> list[str | None]:
    """Returns a unique split name for each distinct value of a column."""
    names: dict[Any, str] = {}
    for value in values:
        if value not in names:
            is_integer = isinstance(value, float) and value.is_integer()
            text = str(int(value) if is_integer else value).lower()
            words = "".join(letter if letter.isalnum() else "_" for letter in text)
            name = "_".join(word for word in words.split("_") if word)[:80] or "none"
            names[value] = lineage.free_name(name, names.values(), "{}_{}")
    return [names[value] for value in values]
