"""HighwayHash-64, the hash of block headers, chunk headers and chunk data."""

from collections.abc import Iterable
from struct import Struct

_U64 = (1 << 64) - 1
_U32 = (1 << 32) - 1

# The ASCII bytes of "Riegeli/records\n" as two little-endian words, twice.
RIEGELI_KEY = (0x2F696C6567656952, 0x0A7364726F636572, 0x2F696C6567656952, 0x0A7364726F636572)

_INIT0 = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
_INIT1 = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)

_PACKET = Struct("<4Q")


def _swap_halves(x: int) -> int:
    return (x >> 32) | ((x & _U32) << 32)


def _rotate_halves(x: int, count: int) -> int:
    """Rotates each 32-bit half of `x` left by `count` bits (0 < count < 32)."""
    high, low = x >> 32, x & _U32
    high = ((high << count) | (high >> (32 - count))) & _U32
    low = ((low << count) | (low >> (32 - count))) & _U32
    return (high << 32) | low


def _zipper_merge(source: list[int], target: list[int]) -> None:
    """Adds a fixed byte permutation of each pair of `source` lanes to the same pair of `target`."""
    for even in (0, 2):
        c = source[even].to_bytes(8, "little") + source[even + 1].to_bytes(8, "little")
        mixed_even = bytes((c[3], c[12], c[2], c[5], c[14], c[1], c[15], c[0]))
        mixed_odd = bytes((c[11], c[4], c[10], c[13], c[9], c[6], c[8], c[7]))
        target[even] = (target[even] + int.from_bytes(mixed_even, "little")) & _U64
        target[even + 1] = (target[even + 1] + int.from_bytes(mixed_odd, "little")) & _U64


class _HighwayState:
    """The four arrays of four 64-bit lanes of HighwayHash."""

    def __init__(self, key: tuple[int, int, int, int]) -> None:
        self.mul0 = list(_INIT0)
        self.mul1 = list(_INIT1)
        self.v0 = [a ^ k for a, k in zip(_INIT0, key, strict=True)]
        self.v1 = [b ^ _swap_halves(k) for b, k in zip(_INIT1, key, strict=True)]

    def absorb(self, lanes: Iterable[int]) -> None:
        v0, v1, mul0, mul1 = self.v0, self.v1, self.mul0, self.mul1
        for i, lane in enumerate(lanes):
            v1[i] = (v1[i] + mul0[i] + lane) & _U64
            mul0[i] ^= (v1[i] & _U32) * (v0[i] >> 32)
            v0[i] = (v0[i] + mul1[i]) & _U64
            mul1[i] ^= (v0[i] & _U32) * (v1[i] >> 32)
        _zipper_merge(v1, v0)
        _zipper_merge(v0, v1)

    def absorb_remainder(self, tail: bytes) -> None:
        """Absorbs the last 1 to 31 bytes of a message."""
        size = len(tail)
        num_aligned, num_trailing = size & ~3, size & 3
        self.v0 = [(v + (size << 32) + size) & _U64 for v in self.v0]
        self.v1 = [_rotate_halves(v, size) for v in self.v1]
        packet = bytearray(32)
        packet[:num_aligned] = tail[:num_aligned]
        if size >= 16:
            packet[28:32] = tail[-4:]
        elif num_trailing:
            packet[16] = tail[num_aligned]
            packet[17] = tail[num_aligned + num_trailing // 2]
            packet[18] = tail[num_aligned + num_trailing - 1]
        self.absorb(_PACKET.unpack(packet))

    def finish(self) -> int:
        for _ in range(4):
            v0 = self.v0
            self.absorb([_swap_halves(v0[i]) for i in (2, 3, 0, 1)])
        return (self.v0[0] + self.v1[0] + self.mul0[0] + self.mul1[0]) & _U64


def highway_hash64(
    data: bytes | bytearray | memoryview, key: tuple[int, int, int, int] = RIEGELI_KEY
) -> int:
    """Returns HighwayHash-64 of `data`, by default with the key of Riegeli/records files."""
    state = _HighwayState(key)
    view = memoryview(data).cast("B")
    num_aligned = len(view) & ~31
    for lanes in _PACKET.iter_unpack(view[:num_aligned]):
        state.absorb(lanes)
    if len(view) > num_aligned:
        state.absorb_remainder(bytes(view[num_aligned:]))
    return state.finish()
