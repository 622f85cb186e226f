"""Rate limits: token buckets, one for each person or address."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Hashable

__all__ = ["Bucket", "Buckets"]

# The maximum number of people or addresses with a bucket; the least active ones are dropped.
_MAX_BUCKETS = 10_000


class Bucket:
    """A token bucket: allows a burst of `size` requests, then `per_second`.

    >>> now = 0.0
    >>> bucket = Bucket(2, 1.0, clock=lambda: now)
    >>> bucket.take(), bucket.take(), bucket.take()
    (0.0, 0.0, 1.0)
    """

    def __init__(
        self, size: float, per_second: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._size = size
        self._rate = per_second
        self._clock = clock
        self._tokens = size
        self._time = clock()

    def take(self) -> float:
        """Takes a token and returns 0, or returns the seconds until the next token."""
        now = self._clock()
        self._tokens = min(self._size, self._tokens + (now - self._time) * self._rate)
        self._time = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._rate


class Buckets:
    """Token buckets, one for each person or address."""

    def __init__(self, size: float, per_second: float) -> None:
        self._get_bucket = functools.lru_cache(_MAX_BUCKETS)(lambda key: Bucket(size, per_second))

    def take(self, key: Hashable) -> float:
        """Takes a token from the bucket of a person or an address, see `Bucket.take`."""
        return self._get_bucket(key).take()
