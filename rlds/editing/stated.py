"""Metadata of merged datasets: equal in all of them, kept with the episodes, or an error."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from rlds.sources.registry import formats
from rlds_ecosystem.model.json_values import parsed
from rlds_ecosystem.model.nests import Paths, put
from rlds_ecosystem.model.texts import shorten

__all__ = ["DATASET_METADATA", "Policy", "merged"]

DATASET_METADATA = "dataset_metadata"
"""The field of episodes that keeps, in JSON, the metadata in which merged datasets differ."""

Policy: TypeAlias = Literal["error", "first", "episodes"]

# Keys of nested dicts; a dataset, the keys of a value in its metadata, and the value.
_Keys: TypeAlias = tuple[str, ...]
_Stated: TypeAlias = tuple[str, _Keys, Any]

# Conversions and edits write these anew, so that they never conflict.
_MADE_ANEW = ("conversion/*", "lineage/*")
_LONGEST = 60


def merged(
    datasets: Mapping[str, Mapping[str, Any]], policy: Policy
) -> tuple[dict[str, Any], list[dict[str, Any]], list[str]]:
    """Merges the metadata of several datasets.

    Counts and other facts about files are those of the first dataset: exports make them anew. Names
    of authors and the like are left out where they differ. All else gives the rows their meaning,
    such as the arguments of an environment, and has to be equal.

    Args:
      datasets: The metadata of each, by its name.
      policy: The treatment of other differences: an "error", the value of the "first" dataset for
        all episodes, or the value of each dataset kept with its "episodes".

    Returns:
      The common metadata; for each dataset, the metadata in which it differs, or nothing if no
      difference is kept; and notes on the differences that are no error.

    Raises:
      ValueError: The metadata differs; the message has the location and the remedy.
    """
    rules, first = _Rules(), next(iter(datasets))
    common_metadata: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {name: {} for name in datasets}
    notes: list[str] = []
    alike = rules.alike(datasets)
    for path, values in alike.items():
        diff, common_values = rules.difference(path, values, alike), values
        of_first = [each for each in values if each[0] == first]
        if diff and policy == "episodes":
            common_values = []
            for name, keys, value in values:
                put(own[name], keys, value)
            notes.append(f"{diff}; kept for each episode, in the field {DATASET_METADATA}")
        elif diff and rules.is_provenance(path):
            common_values = []
            notes.append(f"{diff}; left out")
        elif diff and policy == "first":
            common_values = of_first
            notes.append(f"{diff}; the value of the first dataset is used for all")
        elif diff:
            raise ValueError(
                f"merge: the metadata differs in {diff}. Keep the value of each dataset with its "
                "episodes (metadata='episodes', --metadata episodes), or use that of the first "
                "dataset for all (metadata='first', --metadata first)"
            )
        elif rules.is_counted(path):
            common_values = of_first if _is_split(path, alike) else values
        elif missing := [name for name in datasets if name not in {each for each, *_ in values}]:
            notes.append(f"{path}: missing in {', '.join(missing)}; used for all")
        for _, keys, value in reversed(common_values):
            put(common_metadata, keys, value)
    return common_metadata, [*own.values()] if any(own.values()) else [], notes


class _Rules:
    """The rules of all formats for comparing metadata, see `rlds.sources.registry.Format`.

    Attributes:
      is_counted: Tells of a place if it has a count, or another fact about files.
      is_provenance: Tells of a place if it says where data comes from.
    """

    def __init__(self) -> None:
        registry = formats().values()
        self.is_counted = _matcher([*_MADE_ANEW, *(name for it in registry for name in it.counted)])
        self.is_provenance = _matcher([name for it in registry for name in it.provenance])
        self._by_file = {tuple(name.split("/")) for it in registry for name in it.by_file}

    def alike(self, datasets: Mapping[str, Mapping[str, Any]]) -> Paths[list[_Stated]]:
        """Returns the values that have to be equal, by their path in the metadata.

        What is stated of single files has one place for all files.
        """
        values: Paths[list[_Stated]] = Paths()
        for name, metadata in datasets.items():
            for keys, value in _leaves(metadata):
                is_of_file = len(keys) > 2 and keys[:2] in self._by_file
                path = "/".join((*keys[:2], "*", *keys[3:]) if is_of_file else keys)
                values[path] = [*values.get(path, ()), (name, keys, value)]
        return values

    def difference(self, path: str, stated: Sequence[_Stated], alike: Paths[Any]) -> str:
        """Describes the differences of values; empty if only counts differ."""
        (first, _, value), *other_statements = stated
        if self.is_counted(path):
            return ""
        if _is_split(path, alike):
            return f"{path}: a value in one dataset, a group in another"
        for name, _, other in other_statements:
            sides = dict(_leaves(parsed(value))), dict(_leaves(parsed(other)))
            for keys in {**sides[0], **sides[1]} if value != other else ():
                where, values = "/".join((path, *keys)), [side.get(keys) for side in sides]
                one, two = map(json.dumps, values)  # As texts, two NaN are equal.
                if values[0] != values[1] and one != two and not self.is_counted(where):
                    one, two = (shorten(text, _LONGEST) for text in (one, two))
                    return f"{where}: {one} in {first}, {two} in {name}"
        return ""


def _is_split(key: str, alike: Paths[Any]) -> bool:
    """True if a path has a value in one dataset, and a group of values in another."""
    parts = key.split("/")
    above = ("/".join(parts[:n]) for n in range(1, len(parts)))
    return key in alike.parents or any(path in alike for path in above)


def _matcher(patterns: Sequence[str]) -> Callable[[str], object]:
    return re.compile("|".join(map(fnmatch.translate, patterns))).fullmatch


def _leaves(value: Any, above: _Keys = ()) -> Iterator[tuple[_Keys, Any]]:
    """Yields the values that are in dicts, with their keys; an empty dict in one is a value."""
    if isinstance(value, Mapping) and (value or not above):
        for name, child in value.items():
            yield from _leaves(child, (*above, str(name)))
    else:
        yield above, value
