"""CALVIN (http://calvin.cs.uni-freiburg.de) as RLDS: long plays of a robot at a desk.

    training/, validation/          a split each, with
      episode_0000042.npz           one step, by its index
      ep_start_end_ids.npy          the first and the last step of each play
      lang_annotations/auto_lang_ann.npy
                                    annotations of windows of steps, which may overlap
      scene_info.npy                the steps of each scene
      statistics.yaml               means and deviations

A step holds the observation, and the action taken on it: `actions` are absolute poses, and
`rel_actions` scaled differences to the current pose.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
from rlds.alignment import derived_columns
from rlds.raw_files.npz_files import NpzFile, open_npz, read_npy
from rlds.raw_files.untrusted import check_is_file, check_link, is_there, source_errors
from rlds.sources.source import (
    ALL_ROWS,
    DERIVED_DISCOUNT,
    Capabilities,
    Fields,
    Lengths,
    Origin,
    Source,
    SourceEpisode,
    SourceError,
    SourceInfo,
)
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import nest

__all__ = ["CalvinSource"]

_SPLITS = ("training", "validation")
_BOUNDS = "ep_start_end_ids.npy"
_SCENES = "scene_info.npy"
_ANNOTATIONS = "auto_lang_ann.npy"
# Texts that are kept unchanged.
_TEXT_FILES = ("statistics.yaml", ".hydra/merged_config.yaml")
# The limit of steps; the largest dataset has 2.4 million steps.
_MAX_STEPS = 1 << 23
_STEP_FILE = re.compile(r"episode_(\d+)\.npz")
_ACTION_ARRAYS = ("actions", "rel_actions")

_POSE = ("x", "y", "z", "euler_x", "euler_y", "euler_z")
_ELEMENT_NAMES: Mapping[str, tuple[str, ...]] = {
    "actions": (*_POSE, "gripper"),
    "rel_actions": (*_POSE, "gripper"),
    "robot_obs": (
        *(*_POSE, "gripper_width"),
        *(f"joint_{i}" for i in range(1, 8)),
        "gripper_action",
    ),
    "scene_obs": (
        *("sliding_door", "drawer", "button", "switch", "lightbulb", "green_light"),
        *(f"{block}_block_{name}" for block in ("red", "blue", "pink") for name in _POSE),
    ),
}
_DOCS: Mapping[str, str] = {
    "actions": "The target pose of the hand, in the world; gripper -1 closes, 1 opens.",
    "rel_actions": "The target pose relative to the pose of the hand, in 1/50 m and 1/20 rad, at "
    "most 1; gripper -1 closes, 1 opens.",
}


class CalvinSource(Source):
    """Episodes (plays) of CALVIN, with their annotations.

    The splits are the folders `training` and `validation`. An episode is a range of steps of
    `ep_start_end_ids.npy`; its key is the name of its first file, without the ending. `action` is
    the absolute or the relative action; the other action keeps its name. All other arrays of a step
    belong to the observation.

    The field `annotations` of an episode has the windows of steps that were annotated: `begin` and
    `end` (the step after the last one) count from its first step, `text` and `task` describe
    the task, and `embedding` is the embedding of the text. Windows overlap, and do not cover all
    steps, so there is no instruction for each step. `scene` is the scene of the episode, or empty.

    All episodes are truncated, without a final observation.

    Args:
      path: The folder of the dataset, or of a split.
      action: The actions that become `action`.
      annotations: The folder with the annotations, in the folder of a split.

    Raises:
      FileNotFoundError: There is no such dataset.
      SourceError: Ranges or annotations are damaged, or the first step.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        action: Literal["actions", "rel_actions"] = "actions",
        annotations: str = "lang_annotations",
    ) -> None:
        if action not in _ACTION_ARRAYS:
            raise ValueError(f"action: got {action!r}, expected one of {_ACTION_ARRAYS}")
        self._action, self._annotations = action, annotations
        folders = _find_splits(path)
        if not folders:
            raise FileNotFoundError(f"{os.fspath(path)!r} has no {_BOUNDS}, in it or in {_SPLITS}.")
        self._splits = {name: _Split(directory, annotations) for name, directory in folders.items()}
        self.splits = list(self._splits)
        self._embedding_size = max(split.embedding_size for split in self._splits.values())
        first_split = next(iter(self._splits.values()))
        with open_npz(first_split.step(first_split.ranges[0][0])) as step:
            self._shapes = _read_shapes(step)
            if action not in self._shapes:
                raise step.error("no such array", action)
        self._paths = {self._path_of(name): name for name in self._shapes}

    def _path_of(self, name: str) -> str:
        if name == self._action:
            return rlds.ACTION
        return name if name in _ACTION_ARRAYS else f"{rlds.OBSERVATION}/{name}"

    def _field(self, name: str) -> Field:
        dtype, shape = self._shapes[name]
        names = _ELEMENT_NAMES.get(name, ())
        fits = shape == (len(names),)
        return Field(dtype, shape, names=names if fits else None, doc=_DOCS.get(name, ""))

    @functools.cached_property
    @override
    def fields(self) -> Fields:
        steps = {path: self._field(name) for path, name in self._paths.items()}
        size = self._embedding_size
        episode = {
            "annotations": {
                "begin": Field(np.int64, (None,)),
                "end": Field(np.int64, (None,)),
                "text": Field(str, (None,)),
                "task": Field(str, (None,)),
                **({"embedding": Field(np.float32, (None, size))} if size else {}),
            },
            "scene": Field(str),
        }
        return Fields(nest({**steps, rlds.DISCOUNT: DERIVED_DISCOUNT}), episode)

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        metadata = {name: split.metadata for name, split in self._splits.items()}
        return SourceInfo(
            description="Plays of a robot at a desk, with texts for windows of steps.",
            homepage="http://calvin.cs.uni-freiburg.de",
            license="MIT",
            metadata={"calvin": metadata},
            options={"action": self._action, "annotations": self._annotations},
        )

    @property
    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(
            lengths=self._lengths,
            reads_rows=True,
            totals=self._totals,
            faults=lambda split: self._splits[split].find_faults(),
        )

    @override
    def inputs(self) -> Sequence[str | os.PathLike[str]]:
        return [file for split in self._splits.values() for file in split.inputs()]

    @override
    def num_episodes(self, split: str) -> int:
        return len(self._splits[split].ranges)

    def _lengths(self, split: str) -> Lengths:
        lengths = [last + 1 - first for first, last in self._splits[split].ranges]
        return Lengths.create(lengths, final_observation_known=False)

    def _totals(self, split: str) -> Mapping[str, int]:
        """Counts the steps of the ranges, and the annotated windows in them."""
        steps, data = self._lengths(split).num_steps, self._splits[split]
        return {"steps": int(steps.sum()), "annotations": data.num_annotations}

    @override
    def key(self, split: str, index: int) -> str:
        data = self._splits[split]
        return str(data.step(data.ranges[index][0]).stem)

    @override
    def read(
        self, split: str, index: int, fields: Collection[str] | None = None, rows: slice = ALL_ROWS
    ) -> SourceEpisode:
        data = self._splits[split]
        first_step, last_step = data.ranges[index]
        length = last_step + 1 - first_step
        paths = [path for path in self.fields.step_paths(fields) if path in self._paths]
        step_indices = range(first_step, last_step + 1)[rows]
        flags = derived_columns(length, length, terminal=False)
        annotations = data.annotations_of(index, self._embedding_size)
        return SourceEpisode(
            key=self.key(split, index),
            steps=nest(
                {
                    **self._columns(split, index, step_indices, paths),
                    **{path: column[rows] for path, column in flags.items()},
                }
            ),
            origin=Origin(f"{split}/{data.step(first_step).name}", first_step, last_step + 1),
            truncated=True,
            final_observation_known=False,
            metadata={"annotations": annotations, "scene": data.scene_of(index)},
            counts={"steps": length, "annotations": len(annotations["begin"])},
        )

    def _columns(
        self, split: str, index: int, step_indices: range, paths: Sequence[str]
    ) -> dict[str, np.ndarray]:
        """Reads fields of some steps, by their indices."""
        data = self._splits[split]
        start = data.ranges[index][0]
        files = [data.step(i) for i in step_indices] if paths else []
        for i, file in zip(step_indices, files):
            if not file.exists():  # Checks all files before allocating memory.
                raise SourceError("no such file", file=file, row=i - start)
        columns = {}
        for path in paths:
            dtype, shape = self._shapes[self._paths[path]]
            columns[path] = np.empty((len(step_indices), *shape), Field(dtype).column_dtype)
        for row, file in enumerate(files):
            try:
                with open_npz(file) as step:
                    self._check(step)
                    for path in paths:
                        columns[path][row] = step.read(self._paths[path])
            except SourceError as error:
                error.locate(episode=self.key(split, index), row=step_indices[row] - start)
                raise
        return columns

    def _check(self, step: NpzFile) -> None:
        shapes = _read_shapes(step)
        for name in {*shapes, *self._shapes}:
            if shapes.get(name) != self._shapes.get(name):
                actual, expected = (
                    "no such array" if array is None else f"{array[0]} of shape {array[1]}"
                    for array in (shapes.get(name), self._shapes.get(name))
                )
                raise step.error(f"{actual}, but the first step has {expected}", name)


class _Split:
    """A folder with steps.

    Args:
      directory: The folder.
      annotations: The name of the folder of annotations in it.

    Attributes:
      ranges: The first and the last step of each play.
      metadata: The texts and the scenes.
      embedding_size: The number of elements of an embedding; 0 if there are none.
      num_annotations: The number of annotations in the ranges.
    """

    def __init__(self, directory: epath.Path, annotations: str) -> None:
        self._directory, self._annotations_file = directory, directory / annotations / _ANNOTATIONS
        bounds = read_npy(directory / _BOUNDS)
        if getattr(bounds, "dtype", np.dtype("O")).kind not in "iu" or bounds.shape[1:] != (2,):
            raise SourceError("expected two integers for each range", file=directory / _BOUNDS)
        if not len(bounds):
            raise SourceError("expected at least one range", file=directory / _BOUNDS)
        self.ranges = [(int(first), int(last)) for first, last in bounds]
        previous_last = -1
        for row, (first, last) in enumerate(sorted(self.ranges)):
            if first <= previous_last or last < first:
                reason = "overlaps another range" if last >= first else "ends before it begins"
                problem = f"the range {first} to {last} {reason}"
                raise SourceError(problem, file=directory / _BOUNDS, row=row)
            previous_last = last
        if (total := sum(last + 1 - first for first, last in self.ranges)) > _MAX_STEPS:
            raise SourceError(f"{total:,} steps", file=directory / _BOUNDS)
        self._width = self._find_width()
        self._scenes = self._read_scenes()
        texts = {name: self._text(name) for name in _TEXT_FILES}
        self.metadata: dict[str, Any] = {"scene_info": self._scenes, **texts}
        self._read_annotations()

    def step(self, index: int) -> epath.Path:
        """Returns the file of a step."""
        return self._directory / f"episode_{index:0{self._width}d}.npz"

    def _find_width(self) -> int:
        """Returns the number of digits in the names of steps."""
        name, start = "episode_{:0{}d}.npz", self.ranges[0][0]
        widths = (7, 6, 8)
        return next((w for w in widths if (self._directory / name.format(start, w)).exists()), 7)

    def _text(self, name: str) -> str | None:
        file = self._directory / name
        if not is_there(file):
            return None
        check_is_file(file)
        with source_errors(file):
            return str(file.read_text())

    def _read_scenes(self) -> dict[str, list[int]]:
        file = self._directory / _SCENES
        if not is_there(file):
            return {}
        with source_errors(file):
            return {
                str(name): [int(first_step), int(last_step)]
                for name, (first_step, last_step) in dict(read_npy(file)).items()
            }

    def _read_annotations(self) -> None:
        """Reads the annotations of windows of steps, and assigns them to ranges."""
        self._annotations = _annotations_of([], [], [], None)
        file = self._annotations_file
        check_link(file.parent)
        if is_there(file):
            with source_errors(file):
                content = read_npy(file)
                language = content["language"]
                texts, tasks, embeddings = language["ann"], language["task"], language.get("emb")
                windows = list(content["info"]["indx"])
                self._annotations = _annotations_of(windows, texts, tasks, embeddings)
        starts, stops = self._annotations["begin"], self._annotations["end"]
        ranges = np.array(self.ranges)
        order = np.argsort(ranges[:, 0])
        positions = np.searchsorted(ranges[order, 0], starts, "right") - 1
        is_inside = (positions >= 0) & (starts < stops) & (stops <= ranges[order[positions], 1] + 1)
        self._range_of = np.where(is_inside, order[positions], -1)
        self.num_annotations = int(is_inside.sum())
        embeddings = self._annotations.get("embedding")
        self.embedding_size = 0 if embeddings is None else int(embeddings.shape[1])

    def annotations_of(self, index: int, embedding_size: int) -> dict[str, np.ndarray]:
        """Returns the annotations of a range."""
        rows = self._range_of == index
        columns = {name: column[rows] for name, column in self._annotations.items()}
        if embedding_size:
            columns.setdefault("embedding", np.zeros((0, embedding_size), np.float32))
        start, _ = self.ranges[index]
        return {**columns, "begin": columns["begin"] - start, "end": columns["end"] - start}

    def scene_of(self, index: int) -> str:
        """Returns the scene of a range; empty if unknown."""
        first_step, last_step = self.ranges[index]
        scenes = self._scenes.items()
        return next((name for name, (b, e) in scenes if b <= first_step and last_step <= e), "")

    def inputs(self) -> Iterator[str]:
        """Yields the input files."""
        directory = os.fspath(self._directory)
        names = (_BOUNDS, _SCENES, *_TEXT_FILES)
        for file in (*(self._directory / name for name in names), self._annotations_file):
            if file.exists():
                yield os.fspath(file)
        for first_step, last_step in self.ranges:
            for index in range(first_step, last_step + 1):
                yield os.path.join(directory, f"episode_{index:0{self._width}d}.npz")

    def find_faults(self) -> Iterator[SourceError]:
        """Yields annotations and steps outside all ranges."""
        for row in np.flatnonzero(self._range_of < 0).tolist():
            start, end = (int(self._annotations[name][row]) for name in ("begin", "end"))
            problem = f"the window from {start} to {end - 1} is outside all ranges of {_BOUNDS}"
            yield SourceError(problem, file=self._annotations_file, row=row)
        indices = set()
        for entry in stores.list_directory(self._directory):
            if match := _STEP_FILE.fullmatch(entry.name):
                indices.add(int(match[1]))
        for first_step, last_step in self.ranges:
            indices.difference_update(range(first_step, last_step + 1))
        for index in sorted(indices):
            yield SourceError(f"the step is outside all ranges of {_BOUNDS}", file=self.step(index))


def _annotations_of(
    windows: Sequence[Any], texts: Sequence[Any], tasks: Sequence[Any], embeddings: Any
) -> dict[str, np.ndarray]:
    """Returns the columns of annotations; the end of a window is exclusive."""
    bounds = np.array(windows, np.int64).reshape(len(windows), 2)
    columns = {
        "begin": bounds[:, 0],
        "end": bounds[:, 1] + 1,
        "text": objects(map(str, texts)),
        "task": objects(map(str, tasks)),
    }
    if embeddings is not None:
        values = np.asarray(embeddings, np.float32)
        columns["embedding"] = values.reshape(len(values), math.prod(values.shape[1:]))
    lengths = {name: len(column) for name, column in columns.items()}
    if len({*lengths.values()}) != 1:
        raise ValueError(f"columns of different lengths: {lengths}")
    return columns


def _find_splits(path: str | os.PathLike[str]) -> dict[str, epath.Path]:
    """Returns the folders of splits by name."""
    root = stores.as_path(path)
    if is_there(root / _BOUNDS):
        return {root.name if root.name in _SPLITS else "training": root}
    folders = {name: root / name for name in _SPLITS if is_there(root / name)}
    return folders if any(is_there(folder / _BOUNDS) for folder in folders.values()) else {}


def _read_shapes(step: NpzFile) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    return {name: (array.dtype, array.shape) for name, array in step.arrays.items()}
