"""Parser of the options of `RecordWriter`, such as `transpose,brotli:6,chunk_size:1M`."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from riegeli._format.blocks import BLOCK_SIZE
from riegeli._format.compression import CompressionType, Compressor
from riegeli.base.riegeli_error import InvalidArgumentError

_MAX_SIZE = (1 << 64) - 1
_DEFAULT_CHUNK_SIZE = 1 << 20
_DEFAULT_UNCOMPRESSED_CHUNK_SIZE = 1 << 12

_SIZE_SUFFIXES = {"": 0, "B": 0, "k": 10, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}
_SIZE = re.compile(r"\s*(\+?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([BkKMGTPE]?)\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """The parsed options of `RecordWriter(options=...)`.

    Attributes:
      compressor: Algorithm, level and window of all chunks.
      chunk_size: The maximum size of the records of a chunk, plus 8 bytes for each record.
      initial_padding: The alignment in bytes at which appending to a file begins.
      final_padding: The alignment in bytes after `flush` and `close`.
      transpose: Whether chunks are transposed, which compresses proto messages better.
      bucket_size: The approximate number of bytes compressed together in transposed chunks, so
        that readers can skip fields; None for no limit.
      parallelism: The number of chunks encoded in the background; the bytes of the file are equal.
    """

    compressor: Compressor = field(default_factory=Compressor)
    chunk_size: int = _DEFAULT_CHUNK_SIZE
    initial_padding: int = 1
    final_padding: int = 1
    transpose: bool = False
    bucket_size: int | None = None
    parallelism: int = 0


def _create_error(key: str, value: str, expected: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"Option {key}: {value!r} is invalid, expected {expected}")


def _parse_boolean(key: str, value: str) -> bool:
    if value not in ("", "true", "false"):
        raise _create_error(key, value, "'true', 'false', or nothing, which means 'true'")
    return value != "false"


def _reject_value(key: str, value: str) -> None:
    if value:
        raise _create_error(key, value, "no value")


def _ignore_value(key: str, value: str) -> None:
    del key, value


def _create_integer_parser(low: int, high: int, default: int | None) -> Callable[[str, str], int]:
    def parse(key: str, value: str) -> int:
        if not value and default is not None:
            return default
        if re.fullmatch(r"\s*[+-]?\d+\s*", value, re.ASCII) and low <= int(value) <= high:
            return int(value)
        raise _create_error(key, value, f"an integer from {low} to {high}")

    return parse


def _parse_fraction(key: str, value: str) -> float:
    try:
        # `float` also accepts digits of other scripts, and underscores between digits.
        fraction = float(value) if re.fullmatch(r"[\s\d.eE+-]+", value, re.ASCII) else math.nan
    except ValueError:
        fraction = math.nan
    if not 0 <= fraction <= 1:
        raise _create_error(key, value, "a number from 0 to 1")
    return fraction


def _parse_size(key: str, value: str) -> int:
    match = _SIZE.fullmatch(value)
    if match:
        size = min(float(match[1]) * (1 << _SIZE_SUFFIXES[match[2]]), float(_MAX_SIZE))
        if size >= 0.5:  # Halves round up.
            return min(math.floor(size + 0.5), _MAX_SIZE)
    raise _create_error(key, value, "a size of at least 1 byte, like 65536, 64K or 1.5M")


def _accept_auto(parse: Callable[[str, str], int]) -> Callable[[str, str], int | None]:
    """Extends a parser to accept "auto", which becomes None."""
    return lambda key, value: None if value == "auto" else parse(key, value)


def _parse_padding(key: str, value: str) -> int:
    return _parse_size(key, value) if value else BLOCK_SIZE


def _parse_block_padding(key: str, value: str) -> int:
    return BLOCK_SIZE if _parse_boolean(key, value) else 1


def _create_choice_parser(*choices: str) -> Callable[[str, str], str]:
    def parse(key: str, value: str) -> str:
        if value not in choices:
            raise _create_error(key, value, " or ".join(map(repr, choices)))
        return value

    return parse


_PARSERS: Mapping[str, Callable[[str, str], Any]] = {
    "default": _ignore_value,
    "transpose": _parse_boolean,
    "uncompressed": _reject_value,
    "brotli": _create_integer_parser(0, 11, 6),
    "zstd": _create_integer_parser(-131072, 22, 3),
    "snappy": _create_integer_parser(1, 2, 1),
    "window_log": _accept_auto(_create_integer_parser(10, 31, None)),
    "brotli_encoder": _create_choice_parser("rbrotli_or_cbrotli", "cbrotli", "rbrotli"),
    "chunk_size": _accept_auto(_parse_size),
    "bucket_fraction": _parse_fraction,
    "padding": _parse_padding,
    "initial_padding": _parse_padding,
    "final_padding": _parse_padding,
    "pad_to_block_boundary": _parse_block_padding,
    "parallelism": _create_integer_parser(0, (1 << 31) - 1, None),
}

_ALGORITHMS = {
    "uncompressed": CompressionType.NONE,
    "brotli": CompressionType.BROTLI,
    "zstd": CompressionType.ZSTD,
    "snappy": CompressionType.SNAPPY,
}
_MAX_WINDOW_LOG = {CompressionType.BROTLI: 30, CompressionType.ZSTD: 31}


def parse_options(text: str) -> WriterOptions:
    """Parses comma-separated `key` or `key:value` items; missing items have defaults.

    Raises:
      InvalidArgumentError: a key is unknown, repeated or in conflict, or a value is invalid.
      UnimplementedError: the compression can be read only.
    """
    values = _parse_items(text)
    compressor = _create_compressor(values)
    chunk_size = values.get("chunk_size")
    if chunk_size is None:
        chunk_size = (
            _DEFAULT_UNCOMPRESSED_CHUNK_SIZE
            if compressor.compression_type == CompressionType.NONE
            else _DEFAULT_CHUNK_SIZE
        )
    bucket_size = None
    if compressor.compression_type != CompressionType.NONE:
        bucket_size = max(1, math.floor(chunk_size * values.get("bucket_fraction", 1.0) + 0.5))
    initial_padding, final_padding = _find_paddings(values)
    return WriterOptions(
        compressor=compressor,
        chunk_size=chunk_size,
        initial_padding=initial_padding,
        final_padding=final_padding,
        transpose=values.get("transpose", False),
        bucket_size=bucket_size,
        parallelism=values.get("parallelism", 0),
    )


def _parse_items(text: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for item in filter(None, text.split(",")):
        key, _, value = item.partition(":")
        if key not in _PARSERS:
            raise InvalidArgumentError(
                f"Unknown option {key!r}, expected one of: {', '.join(_PARSERS)}"
            )
        if key in values:
            raise InvalidArgumentError(f"Option {key} is present more than once")
        if key == "default" and values:
            raise InvalidArgumentError("Option default must be the first")
        values[key] = _PARSERS[key](key, value)
    return values


def _create_compressor(values: Mapping[str, Any]) -> Compressor:
    keys = [key for key in _ALGORITHMS if key in values]
    if len(keys) > 1:
        raise InvalidArgumentError(f"Option {keys[1]} conflicts with option {keys[0]}")
    algorithm = keys[0] if keys else "brotli"
    compression_type = _ALGORITHMS[algorithm]
    window_log = values.get("window_log")
    if "window_log" in values:
        if compression_type not in _MAX_WINDOW_LOG:
            raise InvalidArgumentError(f"Option window_log conflicts with option {algorithm}")
        if (window_log or 0) > _MAX_WINDOW_LOG[compression_type]:
            raise _create_error(
                "window_log", str(window_log), f"at most {_MAX_WINDOW_LOG[compression_type]}"
            )
    level = values[algorithm] if keys and algorithm != "uncompressed" else Compressor().level
    return Compressor(compression_type, level, window_log)


def _find_paddings(values: Mapping[str, Any]) -> tuple[int, int]:
    """Returns the initial and the final padding; the last of several options counts."""
    initial_padding = final_padding = 1
    for key, value in values.items():
        if key in ("padding", "pad_to_block_boundary", "initial_padding"):
            initial_padding = value
        if key in ("padding", "pad_to_block_boundary", "final_padding"):
            final_padding = value
    return initial_padding, final_padding
