"""Merging the metadata of datasets: checks for equality, provenance, and per-episode metadata."""

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

__all__ = ["DATASET_METADATA", "Policy", "merge_metadata"]

DATASET_METADATA = "dataset_metadata"
"""The field of episodes with the differing metadata of merged datasets, in JSON."""

Policy: TypeAlias = Literal["error", "first", "episodes"]

# Keys of nested dicts; and a metadata value, as (dataset name, keys, value).
_Keys: TypeAlias = tuple[str, ...]
_Value: TypeAlias = tuple[str, _Keys, Any]

# Conversions and edits rewrite these entries, so they cannot conflict.
_REGENERATED_ENTRIES = ("conversion/*", "lineage/*")
_MAX_QUOTED = 60


def merge_metadata(
    datasets: Mapping[str, Mapping[str, Any]], policy: Policy
) -> tuple[dict[str, Any], list[dict[str, Any]], list[str]]:
    """Merges the metadata of several datasets.

    Counts and other facts about files come from the first dataset, because exports recompute them.
    Provenance, such as authors, is left out if it differs. All other metadata, such as the
    arguments of an environment, determines the meaning of the rows, and must be equal.

    Args:
      datasets: The metadata of each dataset, by the name of the dataset.
      policy: The treatment of other differences: an "error", the value of the "first" dataset for
        all episodes, or the value of each dataset kept with its "episodes".

    Returns:
      The common metadata; for each dataset, its differing metadata, or an empty list if no
      difference is kept; and notes on the tolerated differences.

    Raises:
      ValueError: The metadata differs; the message has the location and the remedy.
    """
    rules, first_name = _Rules(), next(iter(datasets))
    common_metadata: dict[str, Any] = {}
    by_dataset: dict[str, dict[str, Any]] = {name: {} for name in datasets}
    notes: list[str] = []
    comparable = rules.comparable(datasets)
    for path, values in comparable.items():
        diff, kept = rules.difference(path, values, comparable), values
        first_values = [value for value in values if value[0] == first_name]
        if diff and policy == "episodes":
            kept = []
            for name, keys, value in values:
                put(by_dataset[name], keys, value)
            notes.append(f"{diff}; kept for each episode, in the field {DATASET_METADATA}")
        elif diff and rules.is_provenance(path):
            kept = []
            notes.append(f"{diff}; left out")
        elif diff and policy == "first":
            kept = first_values
            notes.append(f"{diff}; the value of the first dataset is used for all")
        elif diff:
            raise ValueError(
                f"merge: the metadata differs in {diff}. Keep the value of each dataset with its "
                "episodes (metadata='episodes', --metadata episodes), or use the value of the "
                "first dataset for all (metadata='first', --metadata first)"
            )
        elif rules.is_counted(path):
            kept = first_values if _is_split(path, comparable) else values
        elif missing := [name for name in datasets if name not in {value[0] for value in values}]:
            notes.append(f"{path}: missing in {', '.join(missing)}; used for all")
        for _, keys, value in reversed(kept):
            put(common_metadata, keys, value)
    return common_metadata, [*by_dataset.values()] if any(by_dataset.values()) else [], notes


class _Rules:
    """The rules of all formats for comparing metadata, see `rlds.sources.registry.Format`.

    Attributes:
      is_counted: Matches the paths of counts and of other facts about files.
      is_provenance: Matches the paths of provenance, such as authors.
    """

    def __init__(self) -> None:
        registry = formats().values()
        counted = [name for format_ in registry for name in format_.counted]
        self.is_counted = _compile_pattern([*_REGENERATED_ENTRIES, *counted])
        provenance = [name for format_ in registry for name in format_.provenance]
        self.is_provenance = _compile_pattern(provenance)
        self._by_file = {tuple(name.split("/")) for format_ in registry for name in format_.by_file}

    def comparable(self, datasets: Mapping[str, Mapping[str, Any]]) -> Paths[list[_Value]]:
        """Returns the values that must be equal, by their path in the metadata.

        Values of single files share the path `.../*/...`.
        """
        values: Paths[list[_Value]] = Paths()
        for name, metadata in datasets.items():
            for keys, value in _list_leaves(metadata):
                is_of_file = len(keys) > 2 and keys[:2] in self._by_file
                path = "/".join((*keys[:2], "*", *keys[3:]) if is_of_file else keys)
                values[path] = [*values.get(path, ()), (name, keys, value)]
        return values

    def difference(self, path: str, values: Sequence[_Value], comparable: Paths[Any]) -> str:
        """Describes the first difference of metadata values; empty if only counts differ."""
        (first, _, value), *other_values = values
        if self.is_counted(path):
            return ""
        if _is_split(path, comparable):
            return f"{path}: a value in one dataset, a group in another"
        for name, _, other in other_values:
            pair = dict(_list_leaves(parsed(value))), dict(_list_leaves(parsed(other)))
            for keys in {**pair[0], **pair[1]} if value != other else ():
                key, both = "/".join((path, *keys)), [leaves.get(keys) for leaves in pair]
                text, other_text = map(json.dumps, both)  # The texts of two NaN are equal.
                if both[0] != both[1] and text != other_text and not self.is_counted(key):
                    text, other_text = (shorten(text, _MAX_QUOTED) for text in (text, other_text))
                    return f"{key}: {text} in {first}, {other_text} in {name}"
        return ""


def _is_split(key: str, comparable: Paths[Any]) -> bool:
    """True if a metadata path has a value in one dataset, and a group of values in another."""
    names = key.split("/")
    parents = ("/".join(names[:n]) for n in range(1, len(names)))
    return key in comparable.parents or any(path in comparable for path in parents)


def _compile_pattern(patterns: Sequence[str]) -> Callable[[str], object]:
    return re.compile("|".join(map(fnmatch.translate, patterns))).fullmatch


def _list_leaves(value: Any, parents: _Keys = ()) -> Iterator[tuple[_Keys, Any]]:
    """Yields the leaves of nested dicts with their keys; a nested empty dict is a leaf."""
    if isinstance(value, Mapping) and (value or not parents):
        for name, child in value.items():
            yield from _list_leaves(child, (*parents, str(name)))
    else:
        yield parents, value
