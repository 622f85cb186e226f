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
    "describe_lineage",
    "describe_operation",
    "edit",
    "inspect_lineage",
    "parse_episodes",
    "parse_operations",
    "parse_span",
    "read_recipe",
]


@dataclasses.dataclass(frozen=True)
class EditResult(Result):
    """The result of an edit, finished or planned.

    Attributes:
      paths: The paths of the new datasets; empty for a plan.
      num_episodes: The number of episodes of the new datasets.
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
      path: The path of the dataset.
      lineage: The result of `rlds.editing.lineage_of`; None if unknown.
      episode: The origins of an episode in earlier datasets, if requested.
      origin: The original file and rows of the episode.
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
            yield from describe_lineage(self.lineage, "  ")


def describe_operation(operation: Mapping[str, Any]) -> str:
    """Returns a description of an operation of a lineage."""
    arguments = [f"{k}: {value}" for k, value in operation.items() if k not in ("do", "rows")]
    return f"{operation['do']} {', '.join(arguments)}".rstrip()


def describe_lineage(lineage: Mapping[str, Any], indent: str = "") -> Iterable[str]:
    """Yields a description of a lineage, line by line."""
    for operation in lineage["operations"]:
        yield indent + describe_operation(operation)
    yield from (f"{indent}license: {conflict}" for conflict in lineage.get("conflicts", ()))
    num_kept, total = lineage.get("kept"), lineage.get("of")
    num_before: Any = num_kept if total is None else total
    episodes = "episodes" if num_kept is None else count(num_before, "episode")
    yield f"{indent}{episodes if total is None else f'{num_kept} of {episodes}'}, from"
    for origin in lineage["from"]:
        notes = [origin["format"], origin["license"] or "no license", origin["digest"]]
        yield f"{indent}  {origin['name']} ({', '.join(notes)})"
        if origin.get("earlier_left_out"):
            yield f"{indent}    earlier operations are not listed"
        if origin["lineage"]:
            yield from describe_lineage(origin["lineage"], indent + "    ")


def inspect_lineage(path: str, split: str | None = None, episode: int | None = None) -> Lineage:
    """Returns the lineage of a dataset, or of one of its episodes."""
    lineage = editing.lineage_of(path)
    if episode is None:
        return Lineage(path, lineage)
    traces = (lineage or {}).get("episodes", {})
    episodes = sources.open(path, split or next(iter(traces), None))
    read = episodes.peek(episode)
    location, origin = episodes.locate(range(len(episodes))[episode]), None
    trace: list[tuple[str, str, int]] = []
    if lineage is not None and location[0] in traces:
        trace, origin = lineages.trace(lineage, *location)
    if origin is None:  # TFDS datasets and their copies have the origin in each episode.
        origin = as_converted(read).origin if not trace or ORIGIN in read.metadata else None
    return Lineage(path, lineage, trace, origin)


def edit(
    path: str, operations: Sequence[editing.Operation], *, plan: bool = False, **arguments: Any
) -> EditResult:
    """Edits a dataset, or plans the edit; see `rlds.edit`."""
    if plan:
        names = ("format", "to_format", "progress", "options", "target_options")
        plan_arguments = {name: arguments[name] for name in names if name in arguments}
        prepared_edit = editing.prepare_edit(path, operations, **plan_arguments)
        num_episodes = sum(prepared_edit.num_episodes.values())
        return EditResult((), num_episodes, prepared_edit.num_original, str(prepared_edit))
    edited = editing.edit(path, *operations, **arguments)
    paths = [dataset.path for dataset in edited.datasets]
    return EditResult(paths, edited.num_episodes, edited.num_original, edited.plan)


def read_recipe(path: str | os.PathLike[str]) -> list[editing.Operation]:
    """Reads the operations of a recipe, in YAML or JSON, or of the lineage of a dataset.

    Raises:
      ValueError: The file is no recipe; the message names the fault.
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


def parse_operations(options: Mapping[str, Any]) -> list[editing.Operation]:
    """Converts the options of `rlds edit` to operations, in the order of its help.

    Raises:
      ValueError: The value of an option is invalid.
    """
    where = options["where"]
    operations: list[editing.Operation] = []
    if options["merge"]:
        fields = dict(_parse_pair(text, "map") for text in options["map_fields"])
        fills = dict(_parse_pair(text, "fill") for text in options["fill"])
        values = {name: _parse_value(text) for name, text in fills.items()}
        missing: Literal["error", "drop"] = "drop" if options["drop_missing"] else "error"
        duplicates: Literal["error", "keep", "drop"] = options["duplicates"] or "error"
        metadata: Literal["error", "first", "episodes"] = options["metadata"] or "error"
        operations.append(
            editing.Merge(options["merge"], fields, values, missing, duplicates, metadata)
        )
    operations += [editing.Delete(condition) for condition in options["delete"]]
    operations += [editing.Keep(condition) for condition in options["keep"]]
    if options["episodes"]:
        operations.append(
            editing.Delete(episodes=parse_episodes(options["episodes"], "--delete-episodes"))
        )
    if options["trim"]:
        begin, end = parse_span(options["trim"], "--trim")
        operations.append(editing.Trim(begin, end, where))
    for text in options["set_fields"]:
        name, value = _parse_pair(text, "set")
        operations.append(editing.Set(name, _parse_value(value), where))
    for text in options["describe"]:
        name, value = _parse_pair(text, "describe")
        operations.append(editing.Describe(name, _parse_value(value)))
    meanings = (_parse_pair(text, "set-meaning") for text in options["set_meaning"])
    operations += [_parse_meaning(*meaning) for meaning in meanings]
    operations += [editing.Rename(*_parse_pair(text, "rename")) for text in options["rename"]]
    operations += [editing.Drop(path) for path in options["drop"]]
    operations += [editing.Add(*_parse_pair(text, "add")) for text in options["add"]]
    if options["fix"]:
        operations.append(editing.Fix(where))
    if options["split"] or options["split_by"]:
        splits = dict(map(_parse_split, options["split"]))
        grouping = options["split_by"], options["groups"], options["seed"]
        operations.append(editing.Split(splits, *grouping))
    if where is not None and not (options["trim"] or options["set_fields"] or options["fix"]):
        raise ValueError("--where needs --set, --trim or --fix. To select episodes, use --keep.")
    return operations


def _parse_pair(text: str, option: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise ValueError(f"--{option}: got {text!r}, expected NAME=VALUE")
    return name, value


def _parse_meaning(field: str, text: str) -> editing.SetMeaning:
    """Parses the meaning of a field: `delta,unit=m,names=x/y/z`, or `unknown`; in any order."""
    meaning: dict[str, Any] = {}
    for word in text.split(","):
        name, sign, value = word.partition("=")
        name, value = (name, value) if sign else ("kind", "" if name == "unknown" else name)
        if name not in ("kind", "unit", "names"):
            raise ValueError(f"--set-meaning: got {word!r}, expected a kind, unit=… or names=A/B/…")
        meaning[name] = [*filter(None, value.split("/"))] if name == "names" else value
    return editing.SetMeaning(field, **meaning)


def _parse_value(text: str) -> Any:
    """Parses a value as JSON; other text is returned as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def parse_episodes(text: str, name: str) -> list[int]:
    """Parses the indices of episodes, such as `3,7,10:15`.

    Args:
      text: The text.
      name: The name of the option, for errors.

    Raises:
      ValueError: The text holds no indices.
    """
    indices: list[int] = []
    try:
        for word in text.split(","):
            begin, sign, end = word.partition(":")
            indices += range(int(begin), int(end)) if sign else [int(begin)]
    except ValueError:
        raise ValueError(f"{name}: got {text!r}, expected numbers such as 3,7,10:15") from None
    return indices


def parse_span(text: str, name: str) -> tuple[int, int | None]:
    """Parses the first step and the end of a range of steps, such as `10:` or `3:6`.

    Args:
      text: The text.
      name: The name of the option, for errors.

    Raises:
      ValueError: The text is no range.
    """
    begin, sign, end = text.partition(":")
    try:
        if not sign:
            raise ValueError
        return int(begin or 0), int(end) if end else None
    except ValueError:
        raise ValueError(f"{name}: got {text!r}, expected BEGIN:END, such as 10: or :200") from None


def _parse_split(text: str) -> tuple[str, str | float | None]:
    """Parses a new split: `train=0.9`, `good=success`, or `rest`."""
    name, sign, value = text.partition("=")
    if not sign:
        return name, None
    try:
        return name, float(value)
    except ValueError:
        return name, value
