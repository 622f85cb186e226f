"""License conflicts of a dataset that is derived from several datasets."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["conflicts", "spdx_of"]

# Prefixes of lower-case SPDX identifiers, by their conditions. Creative Commons identifiers contain
# their conditions (nc, nd, sa).
_PERMISSIVE = (
    *("cc0", "cc-by-", "mit", "apache", "bsd", "bsl", "isc", "zlib", "unlicense", "wtfpl"),
    *("pddl", "odc-by", "cdla-permissive", "etalab", "public-domain"),
)
_COPYLEFT = ("gpl", "agpl", "lgpl", "odbl", "cdla-sharing", "gfdl", "osl", "eupl", "mpl", "epl")
_NC, _ND, _SA = "nc", "nd", "sa"


def spdx_of(license: str) -> str:
    """Returns the SPDX identifier of a license in lower case; other names only in lower case.

    >>> spdx_of("CC BY-NC 4.0"), spdx_of("https://creativecommons.org/licenses/by-sa/4.0/")
    ('cc-by-nc-4.0', 'cc-by-sa-4.0')
    """
    name = license.strip().lower()
    if match := re.search(r"creativecommons\.org/licenses/([a-z-]+)/([0-9.]+)", name):
        name = f"cc-{match[1]}-{match[2]}"
    if "creativecommons.org/publicdomain/zero" in name:
        name = "cc0-1.0"
    return re.sub(r"[\s_]+", "-", name)


def conflicts(licenses: Mapping[str, str], result: str) -> list[str]:
    """Describes conflicts of the license of a dataset with the licenses of its source datasets.

    This is no legal advice. Unknown licenses are ignored.

    Args:
      licenses: The license of each dataset, by its name.
      result: The declared license of the new dataset.

    >>> conflicts({"a": "MIT", "b": "CC-BY-NC-4.0"}, "MIT")
    ['b is under CC-BY-NC-4.0, which forbids commercial use, but the result is declared under MIT']
    """
    sentences = []
    conditions = {name: _conditions(license) for name, license in licenses.items()}
    allowed = _conditions(result)
    for name, required in conditions.items():
        start = f"{name} is under {licenses[name]}"
        if required and _ND in required:
            sentences.append(f"{start}, which forbids sharing changed copies")
        if required and _NC in required and allowed is not None and _NC not in allowed:
            declaration = f"the result is declared under {result}"
            sentences.append(f"{start}, which forbids commercial use, but {declaration}")
        if required is None or _SA not in required:
            continue
        if result and spdx_of(result) != spdx_of(licenses[name]):
            sentences.append(f"{start}, which the result must keep; it is declared under {result}")
        for other, other_conditions in conditions.items():
            additions = (other_conditions or set()) - required
            if _NC in additions:
                sentences.append(
                    f"{start}, which forbids the limits that {licenses[other]} sets for {other}"
                )
    return sentences


def _conditions(license: str) -> set[str] | None:
    """Returns the conditions of a license; None for an unknown license."""
    name = spdx_of(license)
    if name.startswith(_COPYLEFT):
        return {_SA}
    if name.startswith(_PERMISSIVE):
        return {*name.split("-")} & {_NC, _ND, _SA}
    return None
