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
    """The options of `RecordWriter(options=...)`, parsed.

    Attributes:
      compressor: Algorithm, level and window of all chunks.
      chunk_size: The size of the records, with 8 bytes more for each, at which a chunk ends.
      initial_padding: The alignment in bytes at which writing begins in the middle of a file.
      final_padding: The alignment in bytes after `flush` and `close`.
      transpose: Whether chunks are transposed, which compresses proto messages better.
      bucket_size: The approximate number of bytes compressed together in transposed chunks, so
        that readers skip fields they do not need; None for no limit.
      parallelism: The number of chunks encoded in the background. The written bytes do not depend
        on it.
    """

    compressor: Compressor = field(default_factory=Compressor)
    chunk_size: int = _DEFAULT_CHUNK_SIZE
    initial_padding: int = 1
    final_padding: int = 1
    transpose: bool = False
    bucket_size: int | None = None
    parallelism: int = 0


def _invalid(key: str, value: str, expected: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"Option {key}: {value!r} is invalid, expected {expected}")


def _boolean(key: str, value: str) -> bool:
    if value not in ("", "true", "false"):
        raise _invalid(key, value, "'true', 'false', or nothing, which means 'true'")
    return value != "false"


def _no_value(key: str, value: str) -> None:
    if value:
        raise _invalid(key, value, "no value")


def _any_value(key: str, value: str) -> None:
    del key, value


def _integer(low: int, high: int, default: int | None) -> Callable[[str, str], int]:
    def parse(key: str, value: str) -> int:
        if not value and default is not None:
            return default
        if re.fullmatch(r"\s*[+-]?\d+\s*", value, re.ASCII) and low <= int(value) <= high:
            return int(value)
        raise _invalid(key, value, f"an integer from {low} to {high}")

    return parse


def _fraction(key: str, value: str) -> float:
    try:
        # `float` also accepts digits of other scripts, and underscores between digits.
        fraction = float(value) if re.fullmatch(r"[\s\d.eE+-]+", value, re.ASCII) else math.nan
    except ValueError:
        fraction = math.nan
    if not 0 <= fraction <= 1:
        raise _invalid(key, value, "a number from 0 to 1")
    return fraction


def _size(key: str, value: str) -> int:
    match = _SIZE.fullmatch(value)
    if match:
        size = min(float(match[1]) * (1 << _SIZE_SUFFIXES[match[2]]), float(_MAX_SIZE))
        if size >= 0.5:  # Halves round up.
            return min(math.floor(size + 0.5), _MAX_SIZE)
    raise _invalid(key, value, "a size of at least 1 byte, like 65536, 64K or 1.5M")


def _or_auto(parse: Callable[[str, str], int]) -> Callable[[str, str], int | None]:
    """Returns a parser that also accepts "auto", for None."""
    return lambda key, value: None if value == "auto" else parse(key, value)


def _padding(key: str, value: str) -> int:
    return _size(key, value) if value else BLOCK_SIZE


def _block_padding(key: str, value: str) -> int:
    return BLOCK_SIZE if _boolean(key, value) else 1


def _one_of(*choices: str) -> Callable[[str, str], str]:
    def parse(key: str, value: str) -> str:
        if value not in choices:
            raise _invalid(key, value, " or ".join(map(repr, choices)))
        return value

    return parse


_PARSERS: Mapping[str, Callable[[str, str], Any]] = {
    "default": _any_value,
    "transpose": _boolean,
    "uncompressed": _no_value,
    "brotli": _integer(0, 11, 6),
    "zstd": _integer(-131072, 22, 3),
    "snappy": _integer(1, 2, 1),
    "window_log": _or_auto(_integer(10, 31, None)),
    "brotli_encoder": _one_of("rbrotli_or_cbrotli", "cbrotli", "rbrotli"),
    "chunk_size": _or_auto(_size),
    "bucket_fraction": _fraction,
    "padding": _padding,
    "initial_padding": _padding,
    "final_padding": _padding,
    "pad_to_block_boundary": _block_padding,
    "parallelism": _integer(0, (1 << 31) - 1, None),
}

_ALGORITHMS = {
    "uncompressed": CompressionType.NONE,
    "brotli": CompressionType.BROTLI,
    "zstd": CompressionType.ZSTD,
    "snappy": CompressionType.SNAPPY,
}
_MAX_WINDOW_LOG = {CompressionType.BROTLI: 30, CompressionType.ZSTD: 31}


def parse_options(text: str) -> WriterOptions:
    """Parses comma-separated `key` or `key:value` items; an empty text means the defaults.

    Raises:
      InvalidArgumentError: an unknown, repeated or conflicting key, or a wrong value.
      UnimplementedError: a compression that can be read only.
    """
    values = _parse_items(text)
    compressor = _compressor(values)
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
    initial, final = _paddings(values)
    return WriterOptions(
        compressor=compressor,
        chunk_size=chunk_size,
        initial_padding=initial,
        final_padding=final,
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


def _compressor(values: Mapping[str, Any]) -> Compressor:
    chosen = [key for key in _ALGORITHMS if key in values]
    if len(chosen) > 1:
        raise InvalidArgumentError(f"Option {chosen[1]} conflicts with option {chosen[0]}")
    algorithm = chosen[0] if chosen else "brotli"
    compression_type = _ALGORITHMS[algorithm]
    window_log = values.get("window_log")
    if "window_log" in values:
        if compression_type not in _MAX_WINDOW_LOG:
            raise InvalidArgumentError(f"Option window_log conflicts with option {algorithm}")
        if (window_log or 0) > _MAX_WINDOW_LOG[compression_type]:
            raise _invalid(
                "window_log", str(window_log), f"at most {_MAX_WINDOW_LOG[compression_type]}"
            )
    level = values[algorithm] if chosen and algorithm != "uncompressed" else Compressor().level
    return Compressor(compression_type, level, window_log)


def _paddings(values: Mapping[str, Any]) -> tuple[int, int]:
    """Returns the initial and the final padding: of several options the last one counts."""
    initial = final = 1
    for key, value in values.items():
        if key in ("padding", "pad_to_block_boundary", "initial_padding"):
            initial = value
        if key in ("padding", "pad_to_block_boundary", "final_padding"):
            final = value
    return initial, final
