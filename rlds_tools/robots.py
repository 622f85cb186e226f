"""Checks of robot datasets: misspelled names, and fields that differ from the published fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import rlds
from rlds.robotics import DatasetMeaning, find_meaning
from rlds.robotics.registry import similar_dataset
from rlds.sources import AnySource, Episodes
from rlds.sources.standardization import name_of
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import named_leaves

__all__ = ["check_description", "known_defect", "meaning_or_none"]


def meaning_or_none(episodes: Episodes) -> DatasetMeaning | None:
    """Returns the meaning of a dataset; None if it is unknown or malformed."""
    try:
        return find_meaning(name_of(episodes.source), episodes.metadata)
    except ValueError:
        return None


def check_description(episodes: Episodes) -> Iterator[tuple[str, str | None]]:
    """Yields probable faults of the name and the fields of a dataset, with the path of the field.

    Args:
      episodes: A split of the dataset.
    """
    name = name_of(episodes.source)
    try:
        meaning = find_meaning(name, episodes.metadata)
    except ValueError as error:
        yield str(error), None
        meaning = None
    similar = similar_dataset(name)
    if similar is not None:
        yield f"the name {name!r} resembles the known dataset {similar!r}, check it", None
    if episodes.source.capabilities.examples is not None:
        yield from ((problem, None) for problem in _check_folder(episodes.source, meaning))
    if meaning is not None:
        yield from _check_fields(meaning, dict(named_leaves(episodes.spec[rlds.STEPS])))


def _check_folder(source: AnySource, meaning: DatasetMeaning | None) -> Iterator[str]:
    """Yields faults of the folder name, by which TFDS finds a dataset."""
    assert source.capabilities.examples is not None
    folders: list[str] = ["", "", *source.capabilities.examples.directory.absolute().parts]
    info = source.source_info
    grandparent, parent, version = folders[-3:]
    if version != info.version or info.name in (parent, grandparent):
        return
    if meaning is not None or find_meaning(parent) is not None:
        yield (
            f"the folder is named {parent!r}, but dataset_info.json has the name {info.name!r}: "
            f"tfds.load({parent!r}) does not find the dataset"
        )


def _check_fields(
    meaning: DatasetMeaning, fields: dict[str, Any]
) -> Iterator[tuple[str, str | None]]:
    sizes: dict[str, int] = {}
    for dimension in meaning.action:
        min_size = dimension.element + 1 if dimension.element >= 0 else -dimension.element
        sizes[dimension.field] = max(sizes.get(dimension.field, 0), min_size)
    for path, min_size in sizes.items():
        field = fields.get(path)
        if not isinstance(field, Field):
            yield f"{path} is missing, but {meaning.name} has this field", path
            continue
        size = field.shape[0] if field.shape else 1
        if size is not None and size < min_size:
            yield f"{path} has {size} elements, expected {min_size} as in {meaning.name}", path


def known_defect(meaning: DatasetMeaning | None, *words: str | None) -> str:
    """Returns the first known defect of a dataset that mentions a word; empty without one."""
    if meaning is None:
        return ""
    matches = (defect for defect in meaning.defects if any(w and w in defect for w in words))
    return next((f"known defect of {meaning.name}: {defect}" for defect in matches), "")
