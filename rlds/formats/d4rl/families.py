"""The datasets of D4RL: their names, their files, and the scores that returns are compared to.

What is said here of a file is only what the file does not say itself: where it was published, the
reference scores of its task, and how its rows are divided into episodes.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator

__all__ = ["DATASETS", "D4rlDataset", "default_boundary", "family_of", "find_dataset"]

_URL = "http://rail.eecs.berkeley.edu/datasets/offline_rl"


@dataclasses.dataclass(frozen=True)
class D4rlDataset:
    """A dataset of D4RL.

    Attributes:
      name: Its name, such as "hopper-medium-v2".
      family: The kind of its task: "mujoco", "adroit", "antmaze", "kitchen", "maze2d", "minigrid",
        "flow", "carla" or "bullet".
      file: Its file, below the folder that all of D4RL was published in.
      min_score: The return that counts as 0 in normalised scores, if there is one.
      max_score: The return that counts as 1.
    """

    name: str
    family: str
    file: str
    min_score: float | None = None
    max_score: float | None = None

    @property
    def url(self) -> str:
        """Where the file was published."""
        return f"{_URL}/{self.file}"


def find_dataset(name: str | os.PathLike[str]) -> D4rlDataset | None:
    """Returns the dataset that a file holds, by the name of the file or that of the dataset.

    >>> find_dataset("datasets/hopper_mixed.hdf5").name
    'hopper-medium-replay-v0'
    >>> find_dataset("kitchen-complete-v0").file
    'kitchen/mini_kitchen_microwave_kettle_light_slider-v0.hdf5'
    """
    name = os.path.basename(os.fspath(name)).removesuffix(".hdf5")
    return DATASETS.get(name) or _BY_FILE.get(name)


def family_of(name: str | os.PathLike[str]) -> str | None:
    """Returns the family of a file, which need not be one that was published.

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
    * In AntMaze the ant goes on after it reached the goal, so that terminals come in runs. Its
      episodes end where `timeouts` say so. In v0 those are not where the ant was reset, hence
      `observation_jump` too.
    * Maze2d is one endless trajectory, in which `timeouts` mark that the goal changed. Where there
      are none: `file`.
    * All others: `flags`.
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


# The first word that is part of a name decides.
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

_MUJOCO_SCORES = {
    "halfcheetah": (-280.178953, 12135.0),
    "walker2d": (1.629008, 4592.3),
    "hopper": (-20.272305, 3234.3),
    "ant": (-325.6, 3879.7),
}
_ADROIT_SCORES = {
    "pen": (96.262799, 3076.8331017826877),
    "hammer": (-274.856578, 12794.134825156867),
    "relocate": (-6.425911, 4233.877797728884),
    "door": (-56.512833, 2880.5693087298737),
}
_BULLET_SCORES = {
    "halfcheetah": (-1275.766996, 2381.6725),
    "hopper": (20.058972, 1441.8059623430963),
    "ant": (373.705955, 2650.495),
    "walker2d": (16.523877, 1623.6476303317536),
}
_BULLET_MAZE_SCORES = {
    "open": (8.75, 64.15),
    "umaze": (32.46, 153.99),
    "medium": (14.87, 238.05),
    "large": (1.82, 285.92),
}
_MAZE2D_SCORES = {
    ("open", "sparse"): (0.01, 20.66),
    ("umaze", "sparse"): (23.85, 161.86),
    ("medium", "sparse"): (13.13, 277.39),
    ("large", "sparse"): (6.7, 273.99),
    ("open", "dense"): (11.17817, 27.166538620695782),
    ("umaze", "dense"): (68.537689, 193.66285642381482),
    ("medium", "dense"): (44.264742, 297.4552547777125),
    ("large", "dense"): (30.569041, 303.4857382709002),
}
# Datasets whose names follow no pattern.
_OTHERS = [
    ("ant-random-expert-v0", "mujoco", "gym_mujoco/ant_random_expert", None),
    (
        "kitchen-complete-v0",
        "kitchen",
        "kitchen/mini_kitchen_microwave_kettle_light_slider-v0",
        (0.0, 4.0),
    ),
    (
        "kitchen-partial-v0",
        "kitchen",
        "kitchen/kitchen_microwave_kettle_light_slider-v0",
        (0.0, 4.0),
    ),
    (
        "kitchen-mixed-v0",
        "kitchen",
        "kitchen/kitchen_microwave_kettle_bottomburner_light-v0",
        (0.0, 4.0),
    ),
    ("minigrid-fourrooms-v0", "minigrid", "minigrid/minigrid4rooms", (0.01442, 2.89685)),
    (
        "minigrid-fourrooms-random-v0",
        "minigrid",
        "minigrid/minigrid4rooms_random",
        (0.01442, 2.89685),
    ),
    ("flow-ring-random-v0", "flow", "flow/flow-ring-v0-random", (-165.22, 24.42)),
    ("flow-ring-controller-v0", "flow", "flow/flow-ring-v0-idm", (-165.22, 24.42)),
    ("flow-merge-random-v0", "flow", "flow/flow-merge-v0-random", (118.67993, 330.03179)),
    ("flow-merge-controller-v0", "flow", "flow/flow-merge-v0-idm", (118.67993, 330.03179)),
    (
        "carla-lane-v0",
        "carla",
        "carla/carla_lane_follow_flat-v0",
        (-0.8503839912088142, 1023.5784385429523),
    ),
    (
        "carla-town-v0",
        "carla",
        "carla/carla_town_subsamp_flat-v0",
        (-114.81579500772153, 2440.1772022247314),
    ),
    ("carla-town-full-v0", "carla", "carla/carla_town_flat-v0", None),
]


def _files() -> Iterator[tuple[str, str, str, tuple[float, float] | None]]:
    """Yields name, family, file without its suffix, and scores of all datasets."""
    for task, scores in _MUJOCO_SCORES.items():
        for kind in ("random", "medium", "expert", "medium-expert", "medium-replay"):
            file = f"{task}_{kind.replace('-', '_')}"
            if kind == "medium-replay":
                file = f"{task.removesuffix('2d')}_mixed"
            yield f"{task}-{kind}-v0", "mujoco", f"gym_mujoco/{file}", scores
        kinds = ("random", "medium", "expert", "medium-replay", "full-replay", "medium-expert")
        for version, kind in itertools.product((1, 2), kinds):
            file = f"gym_mujoco_v{version}/{task}_{kind.replace('-', '_')}-v{version}"
            yield f"{task}-{kind}-v{version}", "mujoco", file, scores
    for task, scores in _ADROIT_SCORES.items():
        for kind, file in (
            ("human", f"{task}-v0_demos_clipped"),
            ("cloned", f"{task}-demos-v0-bc-combined"),
            ("expert", f"{task}-v0_expert_clipped"),
        ):
            yield f"{task}-{kind}-v0", "adroit", f"hand_dapg/{file}", scores
            yield f"{task}-{kind}-v1", "adroit", f"hand_dapg_v1/{task}-{kind}-v1", scores
    for name, maze, starts, goals in (
        ("umaze", "u-maze", False, False),
        ("umaze-diverse", "u-maze", True, True),
        ("medium-play", "big-maze", True, False),
        ("medium-diverse", "big-maze", True, True),
        ("large-play", "hardest-maze", True, False),
        ("large-diverse", "hardest-maze", True, True),
    ):
        file = f"Ant_maze_{maze}_noisy_multistart_{starts}_multigoal_{goals}_sparse"
        yield f"antmaze-{name}-v0", "antmaze", f"ant_maze_new/{file}", (0.0, 1.0)
        yield f"antmaze-{name}-v2", "antmaze", f"ant_maze_v2/{file}_fixed", (0.0, 1.0)
    for (maze, rewards), scores in _MAZE2D_SCORES.items():
        name = f"{maze}-dense" if rewards == "dense" else maze
        if maze == "open":
            yield f"maze2d-{name}-v0", "maze2d", f"maze2d/maze2d-{maze}-{rewards}", scores
            continue
        file = f"{maze}-{rewards}-v1"
        yield f"maze2d-{name}-v1", "maze2d", f"maze2d/maze2d-{file}", scores
        yield f"maze2d-eval-{name}-v1", "maze2d", f"maze2d/maze2d-eval-{file}", None
    for task, scores in _BULLET_SCORES.items():
        for kind in ("random", "medium", "expert", "medium-expert", "medium-replay"):
            file = f"bullet/bullet-{task}_{kind.replace('-', '_')}"
            yield f"bullet-{task}-{kind}-v0", "bullet", file, scores
    for maze, scores in _BULLET_MAZE_SCORES.items():
        yield f"bullet-maze2d-{maze}-v0", "maze2d", f"bullet/bullet-maze2d-{maze}-sparse", scores
    yield from _OTHERS


DATASETS = {
    name: D4rlDataset(name, family, f"{file}.hdf5", *(scores or ()))
    for name, family, file, scores in _files()
}
_BY_FILE = {
    os.path.basename(dataset.file).removesuffix(".hdf5"): dataset for dataset in DATASETS.values()
}
