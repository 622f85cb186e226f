"""Conditions in SQL over the table of episodes.

A condition may come from a stranger: of a page, or a recipe. So it is parsed as one expression and
no statement, by an engine that may open no other file and change no setting.
"""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np

from rlds_ecosystem import import_extra

__all__ = ["check_repeatable", "indices"]

_SECONDS = 60.0
# What has other values at another time: functions, and words that are called without parentheses.
_CHANGING = re.compile(
    r'"function_name":"(now|today|age|random|uuid\w*|gen_random_uuid|transaction_timestamp|'
    r'txid_current|nextval|currval|(?:get_)?current_\w+)"|'
    r'"column_names":\["(current_(?:date|time|timestamp)|localtime|localtimestamp)"\]'
)
_LOCKS = (
    "enable_external_access",
    "autoinstall_known_extensions",
    "autoload_known_extensions",
    "python_enable_replacements",
)


def indices(
    table: str | os.PathLike[str],
    condition: str,
    *,
    beside: Any = None,
    seconds: float = _SECONDS,
) -> np.ndarray:
    """Returns the values of the column `index` in the rows for which a condition holds, in order.

    Args:
      table: A Parquet file.
      condition: An expression of SQL, as DuckDB has it.
      beside: Other columns, as a `pyarrow.Table` that has the column `index`, too.
      seconds: How long it may take.

    Raises:
      ValueError: It is no expression that holds or not, or there is no such column; says where.
    """
    duckdb = import_extra("duckdb")
    connection = _connection(duckdb, table)
    timer = threading.Timer(seconds, connection.interrupt)
    try:
        timer.start()
        relation = connection.read_parquet(os.fspath(table))
        if beside is not None:
            relation = relation.join(connection.from_arrow(beside), "index")
        chosen = relation.filter(duckdb.SQLExpression(condition)).project("index")
        found = np.asarray(chosen.fetchnumpy()["index"], np.int64)
    except duckdb.InterruptException:
        raise ValueError(f"where: {condition!r} takes more than {seconds:g} seconds") from None
    except duckdb.Error as error:
        raise ValueError(f"where: {condition!r}: {_in_words(error)}") from None
    finally:
        timer.cancel()
        connection.close()
    return np.sort(found)


def check_repeatable(condition: str) -> None:
    """Checks that a condition chooses the same episodes whenever it is asked.

    Raises:
      ValueError: It depends on the time, or on chance.
    """
    duckdb = import_extra("duckdb")
    with duckdb.connect(":memory:", config={"enable_external_access": False}) as connection:
        text = f"select 1 from e where ({condition}\n)"  # It may end with a comment.
        # It is parsed, and not run; what is wrong with it is said when it is.
        tree = connection.execute("select json_serialize_sql(?)", [text]).fetchone()[0]
    if found := _CHANGING.search(tree):
        raise ValueError(
            f"where: {condition!r}: {found[1] or found[2]} gives something else each time, and an "
            "edit is to be done again; say the date, or choose with a seed (Split)"
        )


def _connection(duckdb: Any, table: str | os.PathLike[str]) -> Any:
    config = {"threads": 2, "memory_limit": "256MB", "max_temp_directory_size": "0B"}
    connection = duckdb.connect(":memory:", config=config)
    name = os.fspath(Path(table)).replace("'", "''")
    connection.execute(f"set allowed_paths=['{name}']")
    for lock in _LOCKS:
        connection.execute(f"set {lock}=false")
    connection.execute("set lock_configuration=true")
    return connection


def _in_words(error: Exception) -> str:
    """The first lines of an error of DuckDB, which name the columns that there are."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(line for line in lines if not line.startswith(("LINE", "^")))
