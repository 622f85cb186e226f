"""Names: suggestions for misspelt names in errors, and unused names."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

__all__ = ["nearest", "suggest_names", "unused_name"]

# The maximum number of listed names, and the similarities of suggested names, from 0 to 1.
_MAX_LISTED_NAMES = 12
_MIN_SIMILARITY = 0.7
_SUBSTRING_SIMILARITY = 0.75
_MIN_SUBSTRING_LENGTH = 4
_NO_ALIASES: Mapping[str, str] = MappingProxyType({})


def suggest_names(name: str, names: Iterable[str], aliases: Mapping[str, str] = _NO_ALIASES) -> str:
    """Returns the end of an error about an unknown name: similar names, and all names.

    Args:
      name: The unknown name.
      names: The existing names.
      aliases: Existing names by alternative names, which are not listed.

    >>> suggest_names("lerobt", ["tfds", "lerobot", "minari"])
    "did you mean 'lerobot'? There are: tfds, lerobot, minari"
    >>> suggest_names("x", map(str, range(100)))
    'there are: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, and 88 more'
    >>> suggest_names("observation.stat", ["reward"], {"observation.state": "obs/joints"})
    "did you mean 'obs/joints'? There are: reward"
    """
    names = list(names)
    shown = [
        *names[:_MAX_LISTED_NAMES],
        *([f"and {len(names) - _MAX_LISTED_NAMES} more"] if len(names) > _MAX_LISTED_NAMES else []),
    ]
    ending = f"here are: {', '.join(shown)}" if names else "here are none"
    near = dict.fromkeys(aliases.get(each, each) for each in nearest(name, [*names, *aliases]))
    meant = " or ".join(map(repr, [*near][:2]))
    return f"did you mean {meant}? T{ending}" if near else f"t{ending}"


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """Returns the existing names that are similar to a name or a path, the most similar first.

    Only the last two components of paths are compared.

    >>> nearest("observation.stat", ["steps/observation/state", "steps/observation/grid"])
    ['steps/observation/state']
    >>> nearest("instruction", ["steps/action", "steps/language_instruction"])
    ['steps/language_instruction']
    """
    *group, leaf = _components(name)
    similar: dict[tuple[str, ...], tuple[float, float, str]] = {}
    for other in names:
        *above, other_leaf = _components(other)
        ranked = _similarity(leaf, other_leaf), _match_ratio(name, other), other
        if ranked[0] >= _MIN_SIMILARITY and (
            not group or not above or _are_similar(group[-1], above[-1])
        ):
            similar[*above, other_leaf] = max(ranked, similar.get((*above, other_leaf), ranked))
    return [other for *_, other in sorted(similar.values(), key=lambda it: it[:2], reverse=True)]


def unused_name(name: str, taken: Collection[str]) -> str:
    """Returns a name, with a number at the end if it is taken.

    >>> unused_name("top", ["top", "top_2"])
    'top_3'
    """
    numbered_names = (f"{name}_{suffix}" for suffix in itertools.count(2))
    return next(each for each in itertools.chain([name], numbered_names) if each not in taken)


def _components(name: str) -> list[str]:
    components = re.split("[/.]", name.lower())
    return components[1:] if components[0] == "steps" and len(components) > 1 else components


def _are_similar(a: str, b: str) -> bool:
    return a.startswith(b) or b.startswith(a) or _match_ratio(a, b) >= _MIN_SIMILARITY


def _similarity(name: str, other: str) -> float:
    shorter, longer = sorted((name, other), key=len)
    if len(shorter) >= _MIN_SUBSTRING_LENGTH and shorter in longer:
        return max(_match_ratio(name, other), _SUBSTRING_SIMILARITY)
    words, other_words = name.split("_"), other.split("_")
    for end in (0, -1):  # Common first and last words do not count.
        while min(len(words), len(other_words)) > 1 and words[end] == other_words[end]:
            del words[end], other_words[end]
    return _match_ratio("_".join(words), "_".join(other_words))


def _match_ratio(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a, b).ratio()
