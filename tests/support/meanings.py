"""The metadata of fields that each format can store, and a dataset with all of it.

`STATED` has a row for each format that can be written: the facts that its own files can store. All
other facts are stored in the sidecar. `RAW` has a row for each format that can be read: the facts
that sources read from raw data, and their origin. A new format needs its rows here.
"""

import dataclasses
import functools
from typing import Any

import numpy as np

from rlds.alignment import from_sars
from rlds.sources.source import Fields, Origin, Source, SourceEpisode, SourceInfo
from rlds_ecosystem.model.fields import DepthCodes, Field
from rlds_ecosystem.model.nests import leaves_at

CODES = DepthCodes(0.01, 10.0, 3.5, is_log=True)

FACTS = ("unit", "names", "codes", "table", "kind", "rate", "environment", "task", "license")
"""The facts: those of fields first, then those of the dataset."""

# The facts in the files of a format itself, without those of its sidecar.
STATED: dict[str, set[str]] = {
    "envlogger": set(),
    "tfds": {*FACTS},  # Its metadata.json belongs to the dataset.
    "minari": {"environment"},
    "lerobot": {"names", "rate", "task"},
    "aloha": set(),
    "webdataset": set(),
    "zarr": set(),
    "robomimic": {"task"},
    "maniskill": set(),
    "mcap": {*FACTS},  # In a record of the file.
    "d3rlpy": set(),
    "d4rl": set(),
}

# The facts that sources read from raw data of other projects, and their origin.
RAW: dict[str, dict[str, str]] = {
    "envlogger": {},
    "tfds": {"names": "the table of robot datasets", "unit": "that table", "kind": "that table"},
    "minari": {},
    "lerobot": {
        "names": "features.*.names of info.json",
        "unit": "features.*.info.depth_unit",
        "codes": "features.*.info.video.depth_min and so on",
        "table": "the format: task_index; modality.json: annotation.*",
        "rate": "fps of info.json",
    },
    "aloha": {"names": "the format", "kind": "the format", "rate": "the format"},
    "webdataset": {},
    "calvin": {"names": "the format", "kind": "the format", "license": "the homepage"},
    "zarr": {},
    "robomimic": {
        "names": "controller_configs.type of env_args",
        "kind": "controller_configs.control_delta of env_args",
        "rate": "control_freq of env_args",
    },
    "maniskill": {},
    "robomind": {},
    "droid": dict.fromkeys(("names", "unit", "kind", "rate", "license"), "the homepage"),
    "agibot": dict.fromkeys(("names", "unit", "rate", "license"), "the homepage"),
    "mcap": {"names": "name of sensor_msgs/JointState", "unit": "REP 118 for depth; stamps"},
    "rosbag": {"names": "name of sensor_msgs/JointState", "unit": "REP 118 for depth; stamps"},
    "npz": {},
    "layout": dict.fromkeys(("names", "unit"), "the layout"),
    "ogbench": {},
    "sb3": {},
    "d3rlpy": {},
    "imitation": {},
    "d4rl": {},
    "d4rl_pybullet": {},
    "atari_dqn_replay": {},
    "rlds_creator": {},
    "rlu_dmlab": {"names": "the homepage: blue, green, red"},
    **{
        f"rlu_{name}": {}
        for name in ("atari", "atari_transitions", "bsuite", "control_suite", "rwrl", "locomotion")
    },
    **{f"rlu_{name}_windows": {} for name in ("control_suite", "locomotion")},
}

OTHER_FACTS: dict[str, Any] = {
    "unit": "deg",
    "names": ("a", "b", "c"),
    "codes": dataclasses.replace(CODES, high=5.0),
    "kind": "delta",
    "table": ["valid", "invalid"],
    "rate": 20,
    "environment": {"name": "Lift", "control_delta": False},
    "license": "CC-BY-NC-4.0",
    "task": "place",
}
"""Another value of each fact. The value of `table` is the content of the table."""


class Telling(Source):
    """Two episodes of a robot that state all facts; arguments replace the defaults."""

    def __init__(self, lengths: tuple[int, ...] = (4, 3), **facts: Any) -> None:
        self.lengths = lengths
        self._facts = {
            **{"unit": "rad", "names": ("x", "y", "z"), "codes": CODES, "kind": "absolute"},
            **{"table": ["invalid", "valid"], "rate": 10, "task": "pick", "license": "MIT"},
            **{"environment": {"name": "Lift", "control_delta": True}, **facts},
        }

    @functools.cached_property
    def source_info(self) -> SourceInfo:
        facts = self._facts
        metadata = {"fps": facts["rate"], "environment": facts["environment"]}
        return SourceInfo(license=facts["license"], metadata={**metadata, "modes": facts["table"]})

    @functools.cached_property
    def fields(self) -> Fields:
        facts = self._facts
        steps = {
            "observation": {
                "state": Field(np.float32, (3,), names=facts["names"], unit=facts["unit"]),
                "depth": Field(np.uint16, (4, 4, 1), codes=facts["codes"], unit="m"),
                "mode": Field(np.int64, table="modes"),
            },
            "action": Field(np.float32, (2,), kind=facts["kind"]),
            "reward": Field(np.float32),
            "discount": Field(np.float32),
            "language_instruction": Field(str),
        }
        return Fields(steps)

    def inputs(self) -> list[str]:
        return []

    def num_episodes(self, split: str) -> int:
        return len(self.lengths)

    def key(self, split: str, index: int) -> str:
        return f"{self.lengths} {index}"

    def read(
        self, split: str, index: int, fields: Any = None, rows: slice = slice(None)
    ) -> SourceEpisode:
        length = self.lengths[index]
        rng = np.random.default_rng(sum(self.lengths) + index)
        steps = from_sars(
            observation={
                "state": rng.random((length + 1, 3), np.float32),
                "depth": rng.integers(0, 4096, (length + 1, 4, 4, 1), np.uint16),
                "mode": rng.integers(0, 2, length + 1),
            },
            action=rng.random((length, 2), np.float32),
            reward=np.ones(length, np.float32),
            terminal=True,
        )
        texts = np.full(length + 1, self._facts["task"], object)
        origin = Origin("generated", 0, length)
        steps["language_instruction"] = texts
        return SourceEpisode(self.key(split, index), steps, origin, truncated=False)


def facts_of(episodes: Any) -> dict[str, Any]:
    """The metadata of a dataset, by `FACTS`; of fields, by their name in it."""
    fields = dict(leaves_at(episodes.spec["steps"], None))

    def of_fields(name: str) -> dict[str, Any]:
        return {
            path: value for path, field in fields.items() if (value := getattr(field, name, None))
        }

    metadata = episodes.metadata
    return {
        **{name: of_fields(name) for name in ("unit", "names", "codes", "table", "kind")},
        **{"rate": metadata.get("fps"), "environment": metadata.get("environment")},
        **{"license": episodes.source.source_info.license, "modes": metadata.get("modes")},
        "task": [list(episode.steps["language_instruction"]) for episode in episodes]
        if "language_instruction" in fields
        else [],
    }
