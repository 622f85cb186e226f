"""Episodes of `audited_data` with cameras, and faults of their pictures."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import audited_data
import numpy as np

__all__ = ["DATASETS", "FAULTS", "make_films", "plant", "plant_each", "write"]

_HEIGHT, _WIDTH = 72, 96
_Y, _X = np.mgrid[:_HEIGHT, :_WIDTH].astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Filmed:
    """An episode with cameras.

    Attributes:
      episode: The state and the action.
      cameras: Pictures by camera: uint8 of shape `[rows, height, width, 3]`.
    """

    episode: audited_data.Episode
    cameras: Mapping[str, np.ndarray]

    def changed(self, camera: str, pictures: np.ndarray) -> Filmed:
        """The episode with other pictures of a camera."""
        return dataclasses.replace(self, cameras={**self.cameras, camera: pictures})


def write(folder: Path, episodes: Sequence[Filmed]) -> None:
    """Writes episodes to a file each."""
    folder.mkdir(exist_ok=True)
    for index, each in enumerate(episodes):
        cameras = {f"observation/images/{name}": it for name, it in each.cameras.items()}
        arrays = {"observation/state": each.episode.state, "action": each.episode.action}
        task = np.array(each.episode.task)
        np.savez(folder / f"{index:04}.npz", **arrays, **cameras, language_instruction=task)


# --- Clean data ----------------------------------------------------------------------------------


def _texture(rng: np.random.Generator, height: int, width: int, colour: Sequence[float]):
    """A surface of a colour, with spots of several sizes."""
    texture = np.zeros((height, width), np.float32)
    for size in (4, 12, 36):
        spots = rng.normal(size=(height // size + 2, width // size + 2))
        texture += np.kron(spots, np.ones((size, size)))[:height, :width] * (4 + size / 4)
    return np.asarray(colour, np.float32) + texture[..., None]


def _disc(picture: np.ndarray, xy: Sequence[float], size: float, colour: Sequence[float]) -> None:
    picture[(_X - xy[0]) ** 2 + (_Y - xy[1]) ** 2 < size**2] = colour


def _line(picture: np.ndarray, begin: np.ndarray, end: np.ndarray, colour: Sequence[float]) -> None:
    along = end - begin
    share = ((_X - begin[0]) * along[0] + (_Y - begin[1]) * along[1]) / max(along @ along, 1e-6)
    share = np.clip(share, 0, 1)
    distances = (_X - begin[0] - share * along[0]) ** 2 + (_Y - begin[1] - share * along[1]) ** 2
    picture[distances < 9] = colour


def _record(pictures: list[np.ndarray], rng: np.random.Generator, light: float) -> np.ndarray:
    stack = np.stack(pictures) * light
    stack += rng.normal(size=stack.shape).astype(np.float32) * 2
    return np.clip(stack, 0, 255).astype(np.uint8)


def _joints(angles: np.ndarray, base: Sequence[float], lengths: Sequence[float]) -> np.ndarray:
    turns = np.cumsum(angles[: len(lengths)])
    steps = np.stack([np.cos(turns), np.sin(turns)], 1) * np.asarray(lengths)[:, None]
    return np.concatenate([[base], base + np.cumsum(steps, axis=0)])


_OBJECTS = ((200, 40, 30), (40, 150, 60), (60, 60, 200), (220, 190, 40))


def _bench(rng: np.random.Generator, world: np.random.Generator) -> Filmed:
    """An arm before two fixed cameras: one from the front, one from above."""
    it = _short(audited_data.make_episodes("arm", int(rng.integers(1 << 30)), 1)[0])
    walls = [
        _texture(world, _HEIGHT, _WIDTH, (150, 135, 110)),
        _texture(world, _HEIGHT, _WIDTH, (90, 110, 140)),
    ]
    walls[0][48:] -= (60, 70, 60)  # The table.
    light, positions = rng.uniform(0.85, 1.15), rng.uniform((20, 52), (80, 68), (2, 2))
    colours = [_OBJECTS[n] for n in rng.choice(4, 2, replace=False)]
    front, top = [], []
    for state in it.state:
        picture = walls[0].copy()
        for position, colour in zip(positions, colours):
            _disc(picture, position, 5, colour)
        points = _joints(state - (1.5, 0, 0, 0, 0, 0, 0), (48, 56), (20, 16, 10))
        for begin, end in itertools.pairwise(points):
            _line(picture, begin, end, (220, 120, 20))
        front.append(picture)
        picture = walls[1].copy()
        for position, colour in zip(positions, colours):
            _disc(picture, position - (0, 25), 6, colour)
        points = _joints(state[3:], (10, 36), (26, 20, 14))
        for begin, end in itertools.pairwise(points):
            _line(picture, begin, end, (220, 120, 20))
        top.append(picture)
    return Filmed(it, {"front": _record(front, rng, light), "top": _record(top, rng, light)})


def _short(it: audited_data.Episode) -> audited_data.Episode:
    return it.cut(slice(60))


def _crop(world: np.ndarray, corner: Sequence[float]) -> np.ndarray:
    """A crop of a larger picture that wraps around, at a fractional position."""
    (row, down), (column, right) = (
        (int(np.floor(coordinate)), coordinate % 1) for coordinate in corner
    )
    rows, columns = (
        (first + np.arange(size + 1)) % limit
        for first, size, limit in zip((row, column), (_HEIGHT, _WIDTH), world.shape)
    )
    crop = world[np.ix_(rows, columns)]
    crop = crop[:-1] * (1 - down) + crop[1:] * down
    return crop[:, :-1] * (1 - right) + crop[:, 1:] * right


def _wrist(rng: np.random.Generator, world: np.random.Generator) -> Filmed:
    """A camera in a trembling hand, and one that sees the hand from the side."""
    it = _short(
        audited_data.make_episodes("teleoperation", int(rng.integers(1 << 30)), 1)[0].cut(
            np.s_[10:]
        )
    )
    table = _texture(world, 260, 340, (120, 90, 60))
    wall = _texture(world, _HEIGHT, _WIDTH, (160, 165, 170))
    wall[50:] -= (50, 75, 100)
    for corner in rng.uniform((20, 20), (240, 320), (8, 2)).astype(int):
        table[corner[0] : corner[0] + 14, corner[1] : corner[1] + 18] = _OBJECTS[rng.integers(4)]
    light, hand, side = rng.uniform(0.8, 1.2), [], []
    for state in it.state:
        picture = _crop(table, (94 + 60 * state[0], 122 + 80 * state[1])).copy()
        width = 8 + 120 * state[6]
        picture[52:, int(48 - width) : int(54 - width)] = (30, 30, 35)  # Two fingers.
        picture[52:, int(42 + width) : int(48 + width)] = (30, 30, 35)
        hand.append(picture)
        picture = wall.copy()
        _line(
            picture,
            np.array([48.0, 0]),
            np.array([48 + 30 * state[1], 40 + 14 * state[2]]),
            (40, 40, 45),
        )
        _disc(picture, (48 + 30 * state[1], 42 + 14 * state[2]), 6, (70, 70, 75))
        side.append(picture)
    return Filmed(it, {"wrist": _record(hand, rng, light), "side": _record(side, rng, light)})


def _drive(rng: np.random.Generator, world: np.random.Generator) -> Filmed:
    """A base that drives through rooms, with a camera ahead and one to the side."""
    it = _short(audited_data.make_episodes("base", int(rng.integers(1 << 30)), 1)[0])
    floor = world.uniform(60, 140, 3)
    paint = np.array([150, 140, 120]) + rng.uniform(-40, 40, 3)
    rooms = []
    for horizon, shade in ((40, 1.0), (30, 0.8)):
        room = _texture(rng, 120, 700, paint * shade)
        for left in rng.integers(0, 680, 14):
            room[10 : rng.integers(40, 70), left : left + rng.integers(6, 30)] = rng.uniform(
                20, 230, 3
            )
        room[24 + horizon :] = _texture(rng, 96 - horizon, 700, floor)
        rooms.append(room)
    light, pictures = rng.uniform(0.7, 1.2), ([], [])
    distance = np.cumsum(np.hypot(*np.diff(it.state[:, :2], axis=0, prepend=it.state[:1, :2]).T))
    turn = np.unwrap(it.state[:, 2])
    for row in range(len(it)):
        column = 300 + 60 * (turn[row] - turn[0])
        pictures[0].append(_crop(rooms[0], (20 + np.sin(2 * distance[row]), column)))
        pictures[1].append(_crop(rooms[1], (20, column + 40 * distance[row])))
    ahead, aside = (_record(it, rng, light) for it in pictures)
    return Filmed(it, {"ahead": ahead, "aside": aside})


def _screen(rng: np.random.Generator, world: np.random.Generator) -> Filmed:
    """A game on a dark screen, with a figure and some walls; without noise."""
    it = _short(audited_data.make_episodes("noisy expert", int(rng.integers(1 << 30)), 1)[0])
    walls, pictures = world.integers(0, 9, (7, 2)) * 10, []
    for row, state in enumerate(it.state):
        picture = np.full((_HEIGHT, _WIDTH, 3), (20, 10, 30), np.uint8)
        for y, x in walls:
            picture[y : y + 6, x : x + 10] = (90, 60, 30)
        _disc(picture, (48 + 40 * state[0], 36 + 30 * state[1]), 4, (230, 220, 80))
        picture[:4, : max(1, row)] = (40, 200, 90)
        pictures.append(picture)
    return Filmed(it, {"screen": np.stack(pictures)})


DATASETS: Mapping[str, Callable[[np.random.Generator, np.random.Generator], Filmed]] = {
    "bench": _bench,
    "wrist": _wrist,
    "drive": _drive,
    "screen": _screen,
}


def make_films(name: str, seed: int, episodes: int = 40) -> list[Filmed]:
    """Returns episodes of a clean dataset."""
    rng = np.random.default_rng([seed, *name.encode()])
    return [DATASETS[name](rng, np.random.default_rng(seed)) for _ in range(episodes)]


# --- Faults --------------------------------------------------------------------------------------


def _first(it: Filmed) -> tuple[str, np.ndarray]:
    name = next(iter(it.cameras))
    return name, it.cameras[name].copy()


def _frozen(it: Filmed, share: float) -> Filmed:
    name, pictures = _first(it)
    row = int(len(pictures) * (1 - share))
    pictures[row:] = pictures[row]
    return it.changed(name, pictures)


def _black(it: Filmed, share: float) -> Filmed:
    name, pictures = _first(it)
    pictures[int(len(pictures) * (1 - share)) :] //= 64
    return it.changed(name, pictures)


def _blurred(it: Filmed, deviation: float) -> Filmed:
    name, pictures = _first(it)
    blurred, reach = pictures.astype(np.float32), np.arange(-8, 9)
    weights = np.exp(-(reach**2) / (2 * deviation**2))
    for axis in (1, 2):
        wide = [(8, 8) if a == axis else (0, 0) for a in range(4)]
        padded = np.pad(blurred, wide, mode="edge")
        size = blurred.shape[axis]
        shifted = (np.take(padded, np.arange(k + 8, k + 8 + size), axis) for k in reach)
        blurred = sum(w * s for w, s in zip(weights / weights.sum(), shifted))
    noise = np.random.default_rng(0).normal(size=blurred.shape) * 2  # Sensor noise is not blurred.
    return it.changed(name, np.clip(blurred + noise, 0, 255).astype(np.uint8))


def _swapped(it: Filmed) -> Filmed:
    (first_camera, first_pictures), (second_camera, second_pictures) = it.cameras.items()
    return it.changed(first_camera, second_pictures).changed(second_camera, first_pictures)


def _flipped(it: Filmed, *axes: int) -> Filmed:
    name, pictures = _first(it)
    return it.changed(name, np.flip(pictures, axes))


_NO_SIDE = "its scene has no left and right"
_ONE_CAMERA = {"screen": "it has one camera"}
FAULTS: Mapping[str, audited_data.Fault] = {
    "frozen": audited_data.Fault(lambda it: _frozen(it, 1), ("camera frozen",)),
    "frozen half": audited_data.Fault(lambda it: _frozen(it, 0.5), ("camera frozen",)),
    "black": audited_data.Fault(lambda it: _black(it, 1), ("camera black",)),
    "black third": audited_data.Fault(lambda it: _black(it, 0.33), ("camera black",)),
    "blur of 2 pixels": audited_data.Fault(lambda it: _blurred(it, 2), ("camera blurred",)),
    "blur of 1 pixel": audited_data.Fault(lambda it: _blurred(it, 1), ("camera blurred",)),
    "swapped": audited_data.Fault(_swapped, ("cameras swapped",), _ONE_CAMERA),
    "blue first": audited_data.Fault(lambda it: _flipped(it, 3), ("camera colours",)),
    "upside down": audited_data.Fault(lambda it: _flipped(it, 1, 2), ("camera turned",)),
    "mirrored": audited_data.Fault(
        lambda it: _flipped(it, 2), ("camera turned",), dict.fromkeys(("wrist", "drive"), _NO_SIDE)
    ),
}


def plant_each(name: str, seed: int, episodes: int = 40) -> audited_data.Planted:
    """Returns a dataset with each fault once."""
    kinds = [kind for kind, fault in FAULTS.items() if name not in fault.exceptions]
    return plant(make_films(name, seed, episodes), kinds, seed)


def plant(clean: Sequence[Filmed], kinds: Sequence[str], seed: int) -> audited_data.Planted:
    """Plants each fault in one of the clean episodes."""
    films, rng = list(clean), np.random.default_rng([seed, 2])
    indices = rng.choice(len(clean), len(kinds), replace=False).tolist()
    for index, kind in zip(indices, kinds):
        films[index] = FAULTS[kind].plant(films[index])
    return audited_data.Planted(films, dict(zip(indices, kinds)))
