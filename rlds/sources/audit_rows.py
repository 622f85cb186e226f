"""The results of an audit for each episode: a column in a file next to the table of episodes.

`rlds.auditing` writes the file, which is valid as long as the table is, see `episode_table.key_of`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlds_ecosystem import import_extra
from rlds_ecosystem.files.whole_files import write_atomically

__all__ = ["COLUMN", "audit_file", "meanings_in", "read_audit", "write"]

COLUMN = "audit"
"""The name of the column."""

# Audits of other versions are ignored.
_AUDIT_KEY = b"rlds.audit.1"
_MEANINGS_KEY = b"rlds.meanings"


def audit_file(table: Path) -> Path:
    """Returns the path of the audit file of a split, next to its table of episodes."""
    return table.with_name(table.name.replace("episodes-", "audit-", 1))


def write(
    file: Path,
    key: str,
    findings: Sequence[Sequence[str]],
    scores: Mapping[str, np.ndarray],
    meanings: Sequence[str],
) -> None:
    """Writes the results of an audit for the episodes of a split.

    Args:
      file: The file.
      key: The key of the data, see `episode_table.key_of`.
      findings: The names of the findings of each episode.
      scores: The scores of each episode, by name; NaN for no score.
      meanings: The meaning of actions and observations, in sentences.

    Raises:
      OSError: The file cannot be written.
    """
    arrow = import_extra("pyarrow")
    columns = {"findings": arrow.array(findings, arrow.list_(arrow.string()))}
    # NaN becomes null (unknown), for which every comparison is false.
    columns |= {
        name: arrow.array(values, arrow.float64(), mask=np.isnan(values))
        for name, values in scores.items()
    }
    struct = arrow.StructArray.from_arrays(list(columns.values()), list(columns))
    table = arrow.table({"index": np.arange(len(findings)), COLUMN: struct})
    sink = arrow.BufferOutputStream()
    table = table.replace_schema_metadata({_AUDIT_KEY: key, _MEANINGS_KEY: json.dumps([*meanings])})
    import_extra("pyarrow.parquet").write_table(table, sink, compression="zstd")
    write_atomically(file, sink.getvalue().to_pybytes(), durable=False)


def read_audit(file: Path, key: str) -> Any:
    """Returns the columns `index` and `audit` of a split; None if there is no audit of this data.

    Args:
      file: The file, see `audit_file`.
      key: The expected key of the data.
    """
    if not file.is_file():
        return None
    arrow, parquet = import_extra("pyarrow"), import_extra("pyarrow.parquet")
    try:
        with parquet.ParquetFile(file) as parquet_file:
            stored_key = (parquet_file.schema_arrow.metadata or {}).get(_AUDIT_KEY, b"")
            return parquet_file.read() if stored_key.decode(errors="replace") == key else None
    except (OSError, arrow.ArrowInvalid):
        return None


def meanings_in(audit: Any) -> list[str]:
    """Returns the meaning of actions and observations, in sentences.

    Args:
      audit: The table of `read_audit`.
    """
    sentences: list[str] = json.loads(audit.schema.metadata.get(_MEANINGS_KEY, b"[]"))
    return sentences
