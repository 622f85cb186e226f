"""A source of robot data with a field of each kind, for tests of exports."""

import functools
from types import MappingProxyType
from typing import Any

import numpy as np

from rlds.alignment import from_sars
from rlds.sources.source import Fields, Origin, Source, SourceEpisode, SourceInfo
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import leaves_at, nest
from tfds_files.png import encode_png


class RobotSource(Source):
    """Generated episodes: images as arrays and files, texts, numbers of many dtypes and shapes."""

    fields = Fields(
        {
            "observation": {
                "state": Field(np.float32, (3,), names=("x", "y", "z"), unit="m"),
                "camera": Field(np.uint8, (6, 8, 3)),
                "wrist": Field(np.uint8, (None, None, 3), encoding="png"),
                "depth": Field(np.uint16, (6, 8, 1), unit="mm"),
                "grid": Field(np.float64, (2, 4)),
                "note": Field(str),
                "ragged": Field(np.int32, (None, 2)),
                "blob": Field(bytes),
            },
            "action": Field(np.float32, (2,)),
            "reward": np.float32,
            "discount": np.float32,
            "language_instruction": Field(str),
            "timestamp": np.float64,
            "contact": np.bool_,
            "counter": np.uint64,
            "small": Field(np.int8, (1,)),
            "half": np.float16,
        },
        {"seed": np.int64, "operator": Field(str)},
    )

    def __init__(self, lengths: tuple[int, ...] = (5, 1, 7), *, fps: float | None = 10) -> None:
        self.lengths, self.fps = lengths, fps

    @functools.cached_property
    def source_info(self) -> SourceInfo:
        return SourceInfo(metadata={"robot": {"control_freq": self.fps}} if self.fps else {})

    def inputs(self) -> list[str]:
        return ["generated"]

    def num_episodes(self, split: str) -> int:
        return len(self.lengths)

    def key(self, split: str, index: int) -> str:
        return f"robot {index}"

    def read(
        self, split: str, index: int, fields: Any = None, rows: slice = slice(None)
    ) -> SourceEpisode:
        length = self.lengths[index]
        rng = np.random.default_rng(index)
        steps = length + (index != 1)  # The second has no final observation.
        rows = np.arange(steps)

        def objects(values: list[Any]) -> np.ndarray:
            return np.array([*values, None], object)[:-1]

        wrist = rng.integers(0, 255, (steps, 4, 5, 3), np.uint8)
        columns = from_sars(
            observation={
                "state": rng.normal(size=(steps, 3)).astype(np.float32),
                "camera": rng.integers(0, 255, (steps, 6, 8, 3), np.uint8),
                "wrist": objects([encode_png(image) for image in wrist]),
                "depth": rng.integers(0, 5000, (steps, 6, 8, 1), np.uint16),
                "grid": rng.normal(size=(steps, 2, 4)),
                "note": objects([f"row {row}" if row % 2 else "" for row in rows]),
                "ragged": rng.integers(0, 9, (steps, index, 2), np.int32),
                "blob": objects([bytes([row, 255]) for row in rows]),
            },
            action=rng.normal(size=(length, 2)).astype(np.float32),
            reward=rng.normal(size=length).astype(np.float32),
            terminal=index == 2,
            observation_metadata={
                "language_instruction": objects(["pick" if row < 4 else "place" for row in rows]),
                "timestamp": rows * 0.1,
                "contact": rows % 2 == 0,
                "counter": rows.astype(np.uint64),
                "small": rows.astype(np.int8)[:, np.newaxis],
                "half": rows.astype(np.float16),
            },
        )
        return SourceEpisode(
            self.key(split, index),
            columns,
            Origin("generated", 0, steps),
            truncated=index != 2,
            final_observation_known=index != 1,
            metadata={"seed": np.int64(index), "operator": f"operator {index}"},
        )


def with_fields(fields: Fields, steps: Any, episode: Any = MappingProxyType({})) -> Fields:
    """Replaces or adds fields by path; None removes a field."""
    nests = [
        nest({p: f for p, f in {**dict(leaves_at(current, None)), **new}.items() if f is not None})
        for current, new in ((fields.steps, steps), (fields.episode, episode))
    ]
    return Fields(*nests)
