"""The datasets of D4RL: their names, their files, and the reference scores of returns.

This module adds the facts that are not in the files: their URLs, the reference scores of their
tasks, and the rules that divide their rows into episodes.
"""

from __future__ import annotations

import csv
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["DATASETS", "D4rlDataset", "default_boundary", "family_of", "find_dataset"]

_BASE_URL = "http://rail.eecs.berkeley.edu/datasets/offline_rl"
# The published datasets with their files and reference scores.
_TABLE_FILE = Path(__file__).with_name("datasets.tsv")


@dataclasses.dataclass(frozen=True)
class D4rlDataset:
    """A dataset of D4RL.

    Attributes:
      name: The name, such as "hopper-medium-v2".
      family: The kind of its task: "mujoco", "adroit", "antmaze", "kitchen", "maze2d", "minigrid",
        "flow", "carla" or "bullet".
      file: The file, below the folder of the publication.
      min_score: The return with the normalised score 0, if there is one.
      max_score: The return with the normalised score 1.
    """

    name: str
    family: str
    file: str
    min_score: float | None = None
    max_score: float | None = None

    @property
    def url(self) -> str:
        """The download URL of the file."""
        return f"{_BASE_URL}/{self.file}"


def find_dataset(name: str | os.PathLike[str]) -> D4rlDataset | None:
    """Returns the dataset of a file, by the name of the file or of the dataset.

    >>> find_dataset("datasets/hopper_mixed.hdf5").name
    'hopper-medium-replay-v0'
    >>> find_dataset("kitchen-complete-v0").file
    'kitchen/mini_kitchen_microwave_kettle_light_slider-v0.hdf5'
    """
    name = os.path.basename(os.fspath(name)).removesuffix(".hdf5")
    return DATASETS.get(name) or _DATASET_OF_FILE.get(name)


def family_of(name: str | os.PathLike[str]) -> str | None:
    """Returns the family of a file, published or not.

    >>> family_of("antmaze-giant-v7.hdf5"), family_of("hopper.hdf5"), family_of("data.hdf5")
    ('antmaze', 'mujoco', None)
    """
    dataset = find_dataset(name)
    if dataset is not None:
        return dataset.family
    stem = os.path.basename(os.fspath(name)).lower().replace("ant_maze", "antmaze")
    return next((family for word, family in _FAMILY_OF_WORD.items() if word in stem), None)


def default_boundary(
    family: str | None, file_name: str, *, has_timeouts: bool, infos_is_index: bool
) -> tuple[str, ...]:
    """Returns the rules that divide the rows of a file into episodes, if the user names none.

    * Kitchen has the index of the demonstration instead of timeouts: `infos_index`, and `flags`.
    * In AntMaze, the ant continues after it reached the goal, so that terminals come in runs:
      `timeouts` end its episodes. In v0, `timeouts` do not match the resets of the ant, hence
      `observation_jump` too.
    * Maze2d is one endless trajectory, in which `timeouts` mark a new goal. Without them: `file`.
    * All other families: `flags`.
    """
    if infos_is_index:
        return ("infos_index", "flags")
    if family == "antmaze":
        rules = ("timeouts",) if has_timeouts else ()
        is_fixed = has_timeouts and ("fixed" in file_name or "v2" in file_name)
        return rules if is_fixed else (*rules, "observation_jump")
    if family == "maze2d":
        return ("timeouts",) if has_timeouts else ("file",)
    return ("flags",)


# The first word in the name of a file decides.
_FAMILY_OF_WORD = {
    "antmaze": "antmaze",
    "maze2d": "maze2d",
    "bullet": "bullet",
    "kitchen": "kitchen",
    "minigrid": "minigrid",
    "flow": "flow",
    "carla": "carla",
    **dict.fromkeys(("pen", "hammer", "door", "relocate"), "adroit"),
    **dict.fromkeys(("hopper", "halfcheetah", "walker", "ant"), "mujoco"),
}


def _read_table() -> Iterator[D4rlDataset]:
    with _TABLE_FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            scores = (float(row[n]) if row[n] else None for n in ("min_score", "max_score"))
            yield D4rlDataset(row["name"], row["family"], row["file"], *scores)


DATASETS = {dataset.name: dataset for dataset in _read_table()}
_DATASET_OF_FILE = {
    os.path.basename(dataset.file).removesuffix(".hdf5"): dataset for dataset in DATASETS.values()
}
