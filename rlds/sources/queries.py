"""Conditions in SQL over the table of episodes.

A condition may come from an untrusted web page or recipe. Conditions are parsed as one expression,
never as a statement, in a DuckDB connection without access to other files or settings.
"""

from __future__ import annotations

import functools
import json
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlds.sources import condition_errors
from rlds.sources.condition_errors import quote_name
from rlds_ecosystem import import_extra

__all__ = ["ROW_COLUMN", "check_repeatable", "matching_rows"]

ROW_COLUMN = "number"
"""The column of conditions with the index of an episode among all queried episodes."""

_TIME_LIMIT_S = 60.0
# Volatile SQL functions, with and without parentheses.
_VOLATILE_FUNCTIONS = re.compile(
    r'"function_name":"(now|today|age|random|uuid\w*|gen_random_uuid|transaction_timestamp|'
    r'txid_current|nextval|currval|(?:get_)?current_\w+)"|'
    r'"column_names":\["(current_(?:date|time|timestamp)|localtime|localtimestamp)"\]'
)
# Operators, and functions whose results are not much larger than their arguments. Functions such as
# `repeat`, `range`, `lpad` and `regexp_replace` take unlimited time and memory: DuckDB cannot
# interrupt a function.
_FUNCTION_NAMES = """
    + - * / // % ^ ** & | ~ << >> || @ ! -> ->> ~~ !~~ ~~* !~~* ~~~ ^@ <@ @> && add subtract
    multiply divide mod abs ceil ceiling floor round round_even trunc sign sqrt cbrt exp ln log
    log2 log10 pow power sin cos tan asin acos atan atan2 sinh cosh tanh degrees radians pi
    greatest least isfinite isinf isnan even xor bit_count lower lcase upper ucase trim ltrim
    rtrim len length strlen char_length character_length contains starts_with ends_with prefix
    suffix instr strpos position substr substring left right reverse concat concat_ws
    like_escape ilike_escape not_like_escape not_ilike_escape regexp_matches regexp_full_match
    regexp_extract strip_accents md5 sha1 sha256 hash ascii ord unicode split_part list_contains
    list_has list_has_any list_has_all list_position list_indexof list_extract list_element
    list_value list_slice list_distinct list_unique list_sort array_contains array_has
    array_has_any array_has_all array_length array_position array_extract array_slice
    array_value string_split str_split split string_to_array struct_extract struct_pack row
    map_contains cardinality element_at date_part datepart date_trunc datetrunc date_diff
    datediff date_sub datesub year quarter month week day dayofweek dayofyear isodow hour minute
    second epoch epoch_ms dayname monthname last_day make_date make_timestamp to_timestamp
    strptime try_strptime strftime to_years to_months to_weeks to_days to_hours to_minutes
    to_seconds now today age current_date get_current_timestamp current_localtimestamp random
    typeof coalesce nullif if constant_or_null json_extract json_extract_string
    json_extract_path json_extract_path_text json_exists json_valid json_type json_array_length
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
# Casts to these types multiply memory: several letters a byte, or arrays of any size.
_FORBIDDEN_CASTS = {"BLOB", "BYTEA", "BINARY", "VARBINARY", "BIT", "BITSTRING", "ARRAY"}
_ALLOWED_NODES = {"COMPARISON", "CONJUNCTION", "COLUMN_REF", "CONSTANT", "FUNCTION", "OPERATOR"}
_ALLOWED_NODES |= {"BETWEEN", "CASE", "CAST", "COLLATE", "TYPE"}
_MAX_NESTED_FUNCTIONS = 8
_IS_NAN_CALL = re.compile(r"\bisnan\s*\(", re.IGNORECASE)
_DISABLED_SETTINGS = (
    "enable_external_access",
    "autoinstall_known_extensions",
    "autoload_known_extensions",
    "python_enable_replacements",
)


def matching_rows(
    table: str | os.PathLike[str],
    condition: str,
    rows: range | np.ndarray,
    *,
    first: int = 0,
    columns: Any = None,
    aliases: Mapping[str, str] | None = None,
    seconds: float = _TIME_LIMIT_S,
) -> np.ndarray:
    """Returns the indices of the rows that fulfil a condition, in order.

    Args:
      table: A Parquet file.
      condition: An expression in the SQL of DuckDB.
      rows: The queried rows, by the column `index`.
      first: The index of the first queried row.
      columns: Further columns, as a `pyarrow.Table` with the column `index`.
      aliases: The columns by their aliases.
      seconds: The time limit.

    Raises:
      ValueError: The condition is not valid, or has an unknown column.
    """
    duckdb, column_aliases = import_extra("duckdb"), aliases or {}
    _check_bounded(condition)
    if _IS_NAN_CALL.search(condition):
        raise ValueError(f"where: {condition!r}: NaN is NULL in the table: write `x is null`")
    connection, types = _connection(duckdb, table), {}
    timer = threading.Timer(seconds, connection.interrupt)
    try:
        timer.start()
        relation = connection.read_parquet(os.fspath(table))
        if columns is not None:
            # DuckDB before 2 fails on conditions on structs in Arrow; the limit keeps them out.
            extra_columns = connection.from_arrow(columns).limit(len(columns))
            relation = relation.join(extra_columns, "index")
        projections = [
            f"{quote_name(name)} as {quote_name(alias)}" for alias, name in column_aliases.items()
        ]
        if isinstance(rows, range):
            relation = relation.filter(f"index between {rows.start} and {rows.stop - 1}")
            projections.append(f"index + {first - rows.start} as {ROW_COLUMN}")
        else:
            row_columns = {"index": rows, ROW_COLUMN: np.arange(first, first + len(rows))}
            table = import_extra("pyarrow").table(row_columns)
            relation = relation.join(connection.from_arrow(table), "index")
        relation = relation.project(", ".join(["*", *projections]))
        types = dict(zip(relation.columns, relation.types))
        matches = relation.filter(duckdb.SQLExpression(condition)).project(ROW_COLUMN)
        indices = np.asarray(matches.fetchnumpy()[ROW_COLUMN], np.int64)
    except duckdb.InterruptException:
        description = f"takes more than {seconds:g} seconds: simplify it"
        raise ValueError(f"where: {condition!r} {description}") from None
    except duckdb.Error as error:
        words = condition_errors.explain_error(error, condition, types, column_aliases)
        raise ValueError(f"where: {condition!r}: {words}") from None
    finally:
        timer.cancel()
        connection.close()
    return np.sort(indices)


def check_repeatable(condition: str) -> None:
    """Checks that a condition is deterministic: it always selects the same episodes.

    Raises:
      ValueError: The condition depends on the time, or on random numbers.
    """
    if match := _VOLATILE_FUNCTIONS.search(_parse_tree(condition)):
        raise ValueError(
            f"where: {condition!r}: {match[1] or match[2]} gives another value each time, so a "
            "recipe would choose other episodes. Write a date, or use the seed of Split"
        )


@functools.lru_cache(16)  # Edits parse a condition twice.
def _parse_tree(condition: str) -> str:
    """Parses a condition, without running it; returns JSON."""
    duckdb = import_extra("duckdb")
    with duckdb.connect(":memory:", config={"enable_external_access": False}) as connection:
        text = f"select 1 from e where ({condition}\n)"  # The condition may end with a comment.
        tree: str = connection.execute("select json_serialize_sql(?)", [text]).fetchone()[0]
        return tree


def _check_bounded(condition: str) -> None:
    """Checks that a condition needs only time and memory in proportion to the table.

    Raises:
      ValueError: The condition calls an expensive function, or contains a query.
    """
    try:
        tree = json.loads(_parse_tree(condition))
        if tree["error"]:
            problem = condition_errors.explain_syntax_error(condition, tree["error_message"])
            raise ValueError(problem)
        [statement] = tree["statements"]
        _check_node(statement["node"], 0)
    except RecursionError:
        raise ValueError(f"where: {condition[:80]!r}…: nested too deeply: simplify it") from None
    except ValueError as error:
        raise ValueError(f"where: {condition!r}: {error}") from None


def _check_node(node: Any, depth: int) -> None:
    if isinstance(node, Mapping):
        kind, name = node.get("class"), str(node.get("function_name", "")).lower()
        if isinstance(kind, str) and kind not in _ALLOWED_NODES:
            node_name = kind.lower().replace("_", " ")
            raise ValueError(
                f"a condition cannot contain a {node_name}: use only columns, functions"
            )
        if name and name not in _FUNCTIONS:
            raise ValueError(f"a condition cannot call {name!r} (functions: docs/sources.md)")
        target = node.get("type_name") or (node.get("cast_type") or {}).get("id", "")
        if str(target).upper() in _FORBIDDEN_CASTS:
            raise ValueError(f"a condition cannot cast to {target}")
        depth += kind == "CAST" or name[:1].isalpha()
        if depth > _MAX_NESTED_FUNCTIONS:
            raise ValueError(f"more than {_MAX_NESTED_FUNCTIONS} functions are nested: simplify it")
        node = [*node.values()]
    if isinstance(node, list):
        for child in node:
            _check_node(child, depth)


def _connection(duckdb: Any, table: str | os.PathLike[str]) -> Any:
    config = {"threads": 2, "memory_limit": "256MB", "max_temp_directory_size": "0B"}
    connection = duckdb.connect(":memory:", config=config)
    name = os.fspath(Path(table)).replace("'", "''")
    connection.execute(f"set allowed_paths=['{name}']")
    for setting in _DISABLED_SETTINGS:
        connection.execute(f"set {setting}=false")
    connection.execute("set lock_configuration=true")
    return connection
