"""The results of an audit for each episode: a column of its own file beside the table of episodes.

`rlds.auditing` writes it. It is of the data as long as the table is, see `episode_table.key_of`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlds_ecosystem import import_extra
from rlds_ecosystem.files.whole_files import write_atomically

__all__ = ["COLUMN", "audited", "file_beside", "meanings_in", "write"]

COLUMN = "audit"
"""The name of the column."""

# An audit that was made by another version is none.
_KEY = b"rlds.audit.1"
_MEANINGS = b"rlds.meanings"


def file_beside(table: Path) -> Path:
    """Returns the path of the audit file of a split, next to its table of episodes."""
    return table.with_name(table.name.replace("episodes-", "audit-", 1))


def write(
    file: Path,
    key: str,
    findings: Sequence[Sequence[str]],
    numbers: Mapping[str, np.ndarray],
    meanings: Sequence[str],
) -> None:
    """Writes the results of an audit for the episodes of a split.

    Args:
      file: The file.
      key: The key of the data, see `episode_table.key_of`.
      findings: The names of the findings of each episode.
      numbers: Numbers of each episode, by name; NaN where there is none.
      meanings: The meaning of actions and observations, in sentences.

    Raises:
      OSError: It cannot be written.
    """
    arrow = import_extra("pyarrow")
    columns = {"findings": arrow.array(findings, arrow.list_(arrow.string()))}
    # NaN becomes null, which means unknown: no comparison holds for it.
    columns |= {
        name: arrow.array(values, arrow.float64(), mask=np.isnan(values))
        for name, values in numbers.items()
    }
    struct = arrow.StructArray.from_arrays(list(columns.values()), list(columns))
    table = arrow.table({"index": np.arange(len(findings)), COLUMN: struct})
    sink = arrow.BufferOutputStream()
    table = table.replace_schema_metadata({_KEY: key, _MEANINGS: json.dumps([*meanings])})
    import_extra("pyarrow.parquet").write_table(table, sink, compression="zstd")
    write_atomically(file, sink.getvalue().to_pybytes(), durable=False)


def audited(file: Path, key: str) -> Any:
    """Returns the columns `index` and `audit` of a split; None if there is no audit of this data.

    Args:
      file: The file, see `file_beside`.
      key: The expected key of the data.
    """
    if not file.is_file():
        return None
    arrow, parquet = import_extra("pyarrow"), import_extra("pyarrow.parquet")
    try:
        with parquet.ParquetFile(file) as opened:
            metadata = opened.schema_arrow.metadata or {}
            return (
                opened.read() if metadata.get(_KEY, b"").decode(errors="replace") == key else None
            )
    except (OSError, arrow.ArrowInvalid):
        return None


def meanings_in(audit: Any) -> list[str]:
    """Returns the meaning of actions and observations, in sentences.

    Args:
      audit: The table that `audited` returns.
    """
    sentences: list[str] = json.loads(audit.schema.metadata.get(_MEANINGS, b"[]"))
    return sentences
