"""The results of `rlds edit`, planned or finished, and of `rlds inspect --lineage`."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from rlds import editing, sources
from rlds.sources import lineage as lineages
from rlds.sources.episode_fields import ORIGIN, as_converted
from rlds_ecosystem import import_extra
from rlds_tools.results import Block, Result, count, next_commands

__all__ = [
    "EditResult",
    "Lineage",
    "described",
    "edit",
    "in_words",
    "inspect_lineage",
    "numbers_of",
    "operations_of",
    "read_recipe",
    "span_of",
]


@dataclasses.dataclass(frozen=True)
class EditResult(Result):
    """An edit that is made, or planned.

    Attributes:
      paths: The new datasets; none if it is planned.
      num_episodes: The number of their episodes.
      of: The number of episodes before the edit.
      plan: A description of the operations.
    """

    paths: Sequence[str]
    num_episodes: int
    of: int
    plan: str

    def blocks(self) -> Iterable[Block]:
        """Yields the lines and tables to print."""
        if not self.paths:
            yield "plan; nothing was written"
            yield from self.plan.splitlines()
            return
        yield f"{count(self.num_episodes, 'episode')} of {self.of:,} in {', '.join(self.paths)}"
        yield from self.plan.splitlines()[1:]
        yield next_commands(["inspect", self.paths[0]], ["validate", self.paths[0]])


@dataclasses.dataclass(frozen=True)
class Lineage(Result):
    """The result of `rlds inspect --lineage`: the operations and the origins of a dataset.

    Attributes:
      path: The dataset.
      lineage: The result of `rlds.editing.lineage_of`; None if unknown.
      episode: The origins of an episode in earlier datasets, if requested.
      origin: The file and the rows that the episode was first read from.
    """

    path: str
    lineage: Mapping[str, Any] | None
    episode: Sequence[tuple[str, str, int]] | None = None
    origin: sources.Origin | None = None

    def blocks(self) -> Iterable[Block]:
        """Yields the lines and tables to print."""
        if self.episode is not None:
            yield f"{self.path}, that episode comes from:"
            yield from (f"  {name}, {split}, {index}" for name, split, index in self.episode)
            if self.origin is not None:
                yield f"  in {self.origin.file}, rows {self.origin.begin} to {self.origin.end}"
        elif self.lineage is None:
            yield f"{self.path}: no lineage, as the dataset was neither converted nor edited"
        else:
            yield f"{self.path}, by {self.lineage['by']}"
            yield from described(self.lineage, "  ")


def in_words(operation: Mapping[str, Any]) -> str:
    """Returns a description of an operation of a lineage."""
    arguments = [f"{k}: {value}" for k, value in operation.items() if k not in ("do", "rows")]
    return f"{operation['do']} {', '.join(arguments)}".rstrip()


def described(lineage: Mapping[str, Any], indent: str = "") -> Iterable[str]:
    """Yields a description of a lineage, line by line."""
    for operation in lineage["operations"]:
        yield indent + in_words(operation)
    yield from (f"{indent}license: {conflict}" for conflict in lineage.get("conflicts", ()))
    num_kept, of = lineage.get("kept"), lineage.get("of")
    counted = "episodes" if num_kept is None else count(num_kept if of is None else of, "episode")
    yield f"{indent}{counted if of is None else f'{num_kept} of {counted}'}, from"
    for part in lineage["from"]:
        facts = [part["format"], part["license"] or "no license", part["digest"]]
        yield f"{indent}  {part['name']} ({', '.join(facts)})"
        if part.get("earlier_left_out"):
            yield f"{indent}    earlier operations are not listed"
        if part["lineage"]:
            yield from described(part["lineage"], indent + "    ")


def inspect_lineage(path: str, split: str | None = None, episode: int | None = None) -> Lineage:
    """Returns the lineage of a dataset, or of one of its episodes."""
    lineage = editing.lineage_of(path)
    if episode is None:
        return Lineage(path, lineage)
    traces = (lineage or {}).get("episodes", {})
    opened = sources.open(path, split or next(iter(traces), None))
    read = opened.peek(episode)
    location, origin = opened.locate(range(len(opened))[episode]), None
    before: list[tuple[str, str, int]] = []
    if lineage is not None and location[0] in traces:
        before, origin = lineages.trace(lineage, *location)
    if origin is None:  # TFDS datasets and their copies have the origin in each episode.
        origin = as_converted(read).origin if not before or ORIGIN in read.metadata else None
    return Lineage(path, lineage, before, origin)


def edit(
    path: str, operations: Sequence[editing.Operation], *, plan: bool = False, **arguments: Any
) -> EditResult:
    """Edits a dataset, or plans it; see `rlds.edit`."""
    if plan:
        names = ("format", "to_format", "progress", "options", "target_options")
        plan_arguments = {name: arguments[name] for name in names if name in arguments}
        prepared = editing.prepare_edit(path, operations, **plan_arguments)
        return EditResult(
            (), sum(prepared.num_episodes.values()), prepared.num_original, str(prepared)
        )
    edited = editing.edit(path, *operations, **arguments)
    paths = [each.path for each in edited.datasets]
    return EditResult(paths, edited.num_episodes, edited.num_original, edited.plan)


def read_recipe(path: str | os.PathLike[str]) -> list[editing.Operation]:
    """Reads the operations of a recipe, in YAML or JSON, or of the lineage of a dataset.

    Raises:
      ValueError: It is none; says what is wrong.
    """
    parse = json.loads if os.fspath(path).endswith(".json") else _from_yaml
    try:
        with open(path, encoding="utf-8") as file:
            return editing.from_recipe(parse(file.read()))
    except ValueError as error:
        kind = "not valid JSON: " if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(f"{os.fspath(path)!r}: {kind}{error}") from error


def _from_yaml(text: str) -> Any:
    yaml = import_extra("yaml")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"not valid YAML: {error}") from error


def operations_of(given: Mapping[str, Any]) -> list[editing.Operation]:
    """Returns the operations that options of the command line name, in the order of its help.

    Raises:
      ValueError: An option is no such operation.
    """
    where = given["where"]
    operations: list[editing.Operation] = []
    if given["merge"]:
        fields = dict(_pair(text, "map") for text in given["map_fields"])
        fills = {name: _value(text) for name, text in (_pair(one, "fill") for one in given["fill"])}
        missing: Literal["error", "drop"] = "drop" if given["drop_missing"] else "error"
        duplicates: Literal["error", "keep", "drop"] = given["duplicates"] or "error"
        metadata: Literal["error", "first", "episodes"] = given["metadata"] or "error"
        operations.append(
            editing.Merge(given["merge"], fields, fills, missing, duplicates, metadata)
        )
    operations += [editing.Delete(condition) for condition in given["delete"]]
    operations += [editing.Keep(condition) for condition in given["keep"]]
    if given["episodes"]:
        operations.append(
            editing.Delete(episodes=numbers_of(given["episodes"], "--delete-episodes"))
        )
    if given["trim"]:
        begin, end = span_of(given["trim"], "--trim")
        operations.append(editing.Trim(begin, end, where))
    for text in given["set_fields"]:
        name, value = _pair(text, "set")
        operations.append(editing.Set(name, _value(value), where))
    for text in given["describe"]:
        name, value = _pair(text, "describe")
        operations.append(editing.Describe(name, _value(value)))
    operations += [_meaning(*_pair(text, "set-meaning")) for text in given["set_meaning"]]
    operations += [editing.Rename(*_pair(text, "rename")) for text in given["rename"]]
    operations += [editing.Drop(path) for path in given["drop"]]
    operations += [editing.Add(*_pair(text, "add")) for text in given["add"]]
    if given["fix"]:
        operations.append(editing.Fix(where))
    if given["split"] or given["split_by"]:
        parts = dict(_part(text) for text in given["split"])
        operations.append(editing.Split(parts, given["split_by"], given["groups"], given["seed"]))
    if where is not None and not (given["trim"] or given["set_fields"] or given["fix"]):
        raise ValueError("--where needs --set, --trim or --fix. To select episodes, use --keep.")
    return operations


def _pair(text: str, option: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise ValueError(f"--{option}: got {text!r}, expected NAME=VALUE")
    return name, value


def _meaning(field: str, text: str) -> editing.SetMeaning:
    """Parses the meaning of a field: `delta,unit=m,names=x/y/z`, or `unknown`; in any order."""
    meaning: dict[str, Any] = {}
    for word in text.split(","):
        name, sign, value = word.partition("=")
        name, value = (name, value) if sign else ("kind", "" if name == "unknown" else name)
        if name not in ("kind", "unit", "names"):
            raise ValueError(f"--set-meaning: got {word!r}, expected a kind, unit=… or names=A/B/…")
        meaning[name] = [*filter(None, value.split("/"))] if name == "names" else value
    return editing.SetMeaning(field, **meaning)


def _value(text: str) -> Any:
    """A value as JSON; other types as text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def numbers_of(text: str, name: str) -> list[int]:
    """Returns numbers of episodes, of a text such as `3,7,10:15`.

    Args:
      text: The text.
      name: Its name in errors.

    Raises:
      ValueError: It has none.
    """
    numbers: list[int] = []
    try:
        for word in text.split(","):
            begin, sign, end = word.partition(":")
            numbers += range(int(begin), int(end)) if sign else [int(begin)]
    except ValueError:
        raise ValueError(f"{name}: got {text!r}, expected numbers such as 3,7,10:15") from None
    return numbers


def span_of(text: str, name: str) -> tuple[int, int | None]:
    """Returns the first step and the one after the last, of a text such as `10:` or `3:6`.

    Args:
      text: The text.
      name: Its name in errors.

    Raises:
      ValueError: It is none.
    """
    begin, sign, end = text.partition(":")
    try:
        if not sign:
            raise ValueError
        return int(begin or 0), int(end) if end else None
    except ValueError:
        raise ValueError(f"{name}: got {text!r}, expected BEGIN:END, such as 10: or :200") from None


def _part(text: str) -> tuple[str, str | float | None]:
    """A part of a split: `train=0.9`, `good=success`, or `rest`."""
    name, sign, value = text.partition("=")
    if not sign:
        return name, None
    try:
        return name, float(value)
    except ValueError:
        return name, value
