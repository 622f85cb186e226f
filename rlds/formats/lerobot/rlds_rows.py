"""Exports of episodes of any format to LeRobot, with a row for each transition."""

from __future__ import annotations

import dataclasses
import functools
import json
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

import rlds
from rlds.formats.lerobot.cameras import Cameras, clip_statistics
from rlds.formats.lerobot.columns import image_field
from rlds.formats.lerobot.dataset_files import DATASET_FILES, DatasetFiles, NewEpisode, Version
from rlds.formats.lerobot.feature_plan import (
    DONE,
    TRUNCATED,
    PlannedFeature,
    find_instruction,
    plan_features,
    why_unsupported,
)
from rlds.formats.lerobot.feature_statistics import (
    KINDS,
    Statistics,
    image_statistics,
    read_statistics,
    sample_frames,
    statistics_by_column,
)
from rlds.formats.lerobot.final_files import (
    are_staged,
    base_source,
    file_options,
    read_staged,
    write_staged,
)
from rlds.formats.lerobot.language import (
    EVENTS,
    FEATURE,
    LANGUAGE,
    PERSISTENT,
    STYLES,
    find_labels,
    replace_texts,
)
from rlds.formats.lerobot.layout import DEFAULT_COLUMNS, DIGEST, METADATA_KEY, TASK
from rlds.formats.lerobot.source import LeRobotSource
from rlds.formats.lerobot.tables import data_schema, image_array
from rlds.sources import reading
from rlds.sources.encoded_clips import encoded_placements, pixels
from rlds.sources.episode_fields import IMAGE_FILE
from rlds.sources.episodes import Episodes
from rlds.sources.restored_source import RestoredSource
from rlds.sources.sidecar import SIDECAR_KEY, Sidecar, SidecarWriter
from rlds.sources.source import Location, Source, SourceEpisode, is_derived
from rlds.sources.text_tables import TASKS, table_in
from rlds.sources.texts import as_text
from rlds.sources.view import stored_location, stored_paths
from rlds.sources.writing import Export, Placement, sidecar_placements
from rlds.video import CLIP, FIRST, VIDEO
from rlds.video.container import Clip, packets_of
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import leaves_at, nest, root_of
from tfds_files.png import encode_png

__all__ = ["RldsRows"]

_FLAG_FEATURE = {"dtype": "bool", "shape": [1], "names": None}
# The note on text fields, if the field of the task is ambiguous.
_TASK_HINT = "if it is the text of the task, pass task={0!r} (-T task={0} on the command line)"
# The tolerance of distances of time stamps of 32 bits in LeRobot 0.3, in seconds.
_TIME_TOLERANCE_S = 1e-4


class RldsRows:
    """The writer of the rows of episodes from other formats.

    Args:
      episodes: The episodes.
      version: See `LeRobotExport`.
      info: Entries of `info.json`: `fps`, `robot_type`, and the sizes of files.
      task: See `LeRobotExport`.
      to_sidecar: See `LeRobotExport`.
      encoded: The paths of fields of steps that `with_clips` encoded as video.

    Attributes:
      sidecar: The sidecar for values without a column.
      files: A function that opens the files of a dataset, see `DatasetFiles`.
      task_columns: The columns with indices of tasks.

    Raises:
      ValueError: An option is invalid.
    """

    def __init__(
        self,
        episodes: Episodes,
        version: Version,
        info: Mapping[str, Any],
        *,
        task: str | None,
        to_sidecar: Sequence[str] = (),
        encoded: Sequence[str] = (),
    ) -> None:
        self._version, self._episodes, self._fps = version, episodes, float(info["fps"])
        spec = episodes.spec
        steps = dict(leaves_at(spec.pop(rlds.STEPS), None))
        fields = {path: field for path, field in steps.items() if isinstance(field, Field)}
        fields = {path: field for path, field in fields.items() if path not in rlds.STEP_FLAGS}
        episode_fields = dict(leaves_at(spec, None))
        cameras = {p.removesuffix(f"/{CLIP}") for p in episode_fields if p.endswith(f"/{CLIP}")}
        for path in to_sidecar:
            if path not in fields and path not in cameras:
                field_names = ", ".join([*fields, *cameras])
                raise ValueError(f"to_sidecar: got {path!r}, expected one of {field_names}")
        if task is not None and not _is_text(fields.get(task, episode_fields.get(task))):
            raise ValueError(f"task: got {task!r}, expected a text field of steps or episodes")
        texts = {p: field for p, field in {**episode_fields, **fields}.items() if _is_text(field)}
        self._task = find_instruction(texts) if task is None else task
        is_column = self._task in fields and fields[self._task].dtype == str
        labels = {f"{LANGUAGE}/{style}": style for style in STYLES} | find_labels(fields)
        self._texts = {
            style: path
            for path, style in labels.items()
            if version == "v3.0" and path in fields and fields[path].dtype == str
        }
        derived = [path for path, field in fields.items() if is_derived(path, field)]
        excluded = {*to_sidecar, *derived, self._task, *self._texts.values(), PERSISTENT, EVENTS}
        self._flags = [DONE, TRUNCATED]
        if METADATA_KEY in episodes.metadata:  # LeRobot's counters are renumbered.
            excluded |= DEFAULT_COLUMNS.keys() | {p for p in fields if root_of(p) == IMAGE_FILE}
            self._flags = []  # The flags of LeRobot are fields.
        tasks, without_texts = _find_task_texts(episodes, fields, excluded)
        self._columns = plan_features(fields, {*excluded, *without_texts}, self._flags)
        self.task_columns = [column.name for column in self._columns if column.field.table]
        targets = {column.path: column.name for column in self._columns}
        if is_column and self._task not in to_sidecar:
            targets[self._task] = TASK
        targets |= {path: f"{PERSISTENT}/{style}" for style, path in self._texts.items()}
        names = [*targets.values(), *self._flags]
        self._cameras = Cameras(episode_fields, to_sidecar, names, self._fps)
        self.sidecar = Sidecar.create(
            episodes, targets, episode_paths=self._cameras.fields, clips=[*self._cameras.names]
        )
        hints = {} if self._task else texts
        self._reasons = {
            path: _TASK_HINT.format(path)
            for path, field in hints.items()
            if field.dtype == str and (path in fields or "/" not in path)
        }
        self._reasons |= {
            path: why_unsupported(field) for path, field in fields.items() if path not in targets
        }
        note = "frames after the last row are in the sidecar, unless earlier frames depend on them"
        self._reasons |= {f"{path}/{CLIP}": note for path in self._cameras.names}
        self._reasons |= dict.fromkeys(without_texts, "LeRobot would lose the texts of the indices")
        features: dict[str, Any] = {column.name: column.feature() for column in self._columns}
        features |= self._cameras.features
        features |= {**dict.fromkeys(self._flags, _FLAG_FEATURE), **DEFAULT_COLUMNS}
        features |= {PERSISTENT: FEATURE} if self._texts else {}
        self._schema = data_schema(features)
        self._encoded_features = {self._cameras.names[f"{VIDEO}/{path}"] for path in encoded}
        self._features = features
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._bases: dict[Source, LeRobotSource | None] = {}
        self.files: Callable[..., DatasetFiles] = functools.partial(
            DATASET_FILES[version],
            info={**info, "features": features},
            schema=self._schema,
            split=episodes.split if episodes.split.isidentifier() else "train",
            tasks=tasks,
            keeps_clips=True,
        )

    def placements(self) -> Sequence[Placement]:
        """See `Export`."""
        return encoded_placements(sidecar_placements(self.sidecar, self._reasons), self._episodes)

    def compared(self, episode: SourceEpisode) -> SourceEpisode:
        """Returns an episode for comparison, with packets instead of clips, which share files."""
        metadata = dict(leaves_at(episode.metadata, None))
        for path in self._cameras.names:
            clip = Clip(bytes(metadata[f"{path}/{CLIP}"]), int(metadata[f"{path}/{FIRST}"]))
            metadata[f"{path}/{CLIP}"] = b"".join(packets_of(clip))
            metadata[f"{path}/{FIRST}"] = 0
        return dataclasses.replace(episode, metadata=nest(metadata))

    def write(self, path: Path, export: Export) -> None:
        """Writes the episodes of an export."""
        sidecar_writer = SidecarWriter.in_folder(path, self.sidecar)
        is_staged, options = are_staged(export), file_options(export)
        with sidecar_writer as sidecar, self.files(path, **options) as files:
            for location in write_staged(export, files, path) if is_staged else ():
                assert isinstance(location.source, RestoredSource)
                self._describe(base_source(location.source), location.source.stored_sidecar.path)
                sidecar.copy(location.source.stored_sidecar, location.split, location.index)
            for episode in () if is_staged else export.iter_items(self._can_copy):
                if isinstance(episode, Location):
                    assert isinstance(episode.source, RestoredSource)
                    if export.staged_with(export.index) is None:
                        files.add(self._stored)
                    else:
                        self._describe(base_source(episode.source))
                        files.add(self.read_staged(episode))
                    sidecar.copy(episode.source.stored_sidecar, episode.split, episode.index)
                else:
                    reused = self._stored_statistics(export, episode)
                    files.add(self.new_episode(episode, {}, reused))
                    sidecar.add(episode)
            files.finish(self.info_entries())
        (path / DIGEST).write_text(json.dumps({SIDECAR_KEY: self.sidecar.digest}))

    def _can_copy(self, location: Location) -> bool:
        """Returns True if a stored episode can be copied; keeps its rows in this case."""
        source, position = location.source, (location.split, location.index)
        if source not in self._bases:
            self._bases[source] = self._matching_base(source)
        if (base := self._bases[source]) is None:
            return False
        rows, summary = (
            base.stored_episode(*position, self._schema),
            reading.summary(source, *position),
        )
        if rows is None:
            return False
        tasks, num_rows = rows.tasks, summary.num_steps - summary.final_observation_known
        if not self._task:
            tasks = [""] * num_rows
        elif (
            self.sidecar.paths.get(self._task) != TASK
        ):  # The source may have had a different task field.
            paths = [self._task, f"{rlds.STEPS}/{self._task}"]
            tasks = self._task_texts(reading.read(source, *position, paths), num_rows)
        if (num_rows, tasks) != (len(rows.tasks), rows.tasks) or self._find_difference(base):
            return False  # Writing the episode raises the error.
        self._describe(base)
        self._stored = rows
        return True

    def read_staged(self, location: Location) -> NewEpisode:
        """Returns a staged episode."""
        return read_staged(location, self._schema, self.task_columns)

    def _find_difference(self, base: LeRobotSource) -> str:
        """Returns a feature whose shape differs from earlier episodes; empty if all agree."""
        features, shapes = base.info.raw["features"], self.info_entries()
        names = (name for name in shapes if [*features[name]["shape"]] != [*shapes[name]["shape"]])
        return next(names, "")

    def _describe(self, base: LeRobotSource, label: str = "") -> None:
        """Checks and keeps the shapes of images and videos in a dataset."""
        if name := self._find_difference(base):
            raise self._size_error(name, base.info.raw["features"][name]["shape"], label)
        features = base.info.raw["features"]
        images = [column.name for column in self._columns if column.is_image]
        self._shapes |= {name: tuple(features[name]["shape"]) for name in images}
        for name in self._cameras.names.values():
            self._cameras.entries.setdefault(name, {**features[name]})

    def _size_error(self, name: str, shape: Sequence[int | None], label: str) -> ValueError:
        paths = {column.name: column.path for column in self._columns}
        path, old = paths.get(name, name), tuple(self.info_entries()[name]["shape"])
        return ValueError(
            f"{label}, {path}: an image of {tuple(shape)}, but {old} before; LeRobot needs one "
            f"size. Pass to_sidecar=[{path!r}] to write no column of them"
        )

    def _matching_base(self, source: Source) -> LeRobotSource | None:
        """Returns the LeRobot dataset of a source, if it stores exactly the written fields."""
        if not isinstance(source, RestoredSource):
            return None
        if not isinstance(base := source.source, LeRobotSource):
            return None
        fields = {**self.sidecar.steps, **self.sidecar.episode}
        index_columns = {column.path: column.name for column in self._columns if column.field.table}
        resolved = base.resolve_sidecar(self.sidecar)
        is_alike = (
            base.info.fps == self._fps
            and self._features.keys() <= base.info.features.keys()
            and {path for path, field in fields.items() if field.table} == index_columns.keys()
            and {*base.task_columns} == {*index_columns.values()}
            and resolved is not None
            and resolved.layout == source.stored_sidecar.sidecar.layout
            and base.can_be_copied(self._schema, self._version)
        )
        return base if is_alike else None

    def info_entries(self) -> dict[str, Any]:
        """Returns the entries of features in `info.json` that depend on the written episodes."""
        shapes = {name: {"shape": list(shape)} for name, shape in self._shapes.items()}
        return {**shapes, **self._cameras.entries}

    def _stored_statistics(self, export: Export, episode: SourceEpisode) -> dict[str, Statistics]:
        """Returns the stored statistics of features that are unchanged since LeRobot files."""
        source, position = export.episodes.source, export.episodes.locate(export.index)
        location = stored_location(source, *position, ignore_names=True)
        if location is None:
            return {}
        base, old_paths = location.source, stored_paths(source, position)
        if isinstance(base, RestoredSource):
            sidecar, base = base.stored_sidecar.sidecar, base.source
            steps = {f"{rlds.STEPS}/{p}": f"{rlds.STEPS}/{n}" for p, n in sidecar.paths.items()}
            targets = {**steps, **sidecar.episode_paths}
            old_paths = {path: targets[old] for path, old in old_paths.items() if old in targets}
        if not isinstance(base, LeRobotSource):
            return {}
        columns = {f"{rlds.STEPS}/{column.path}": column.name for column in self._columns}
        columns |= {f"{path}/{CLIP}": name for path, name in self._cameras.names.items()}
        stats = read_statistics(base.stored_row(*location[1:]))
        names = {old_paths.get(path): name for path, name in columns.items()}
        reused = {names[path]: stats.get(f, {}) for path, f in base.features if path in names}
        num_rows = episode.num_steps - episode.final_observation_known
        return {
            name: kinds
            for name, kinds in reused.items()
            if kinds.keys() >= KINDS and (kinds["mean"].ndim == 3 or kinds["count"] == num_rows)
        }

    def new_episode(
        self,
        episode: SourceEpisode,
        cells: Mapping[str, Any],
        reused: Mapping[str, Statistics] = MappingProxyType({}),
    ) -> NewEpisode:
        """Returns the rows of an episode.

        Args:
          episode: The episode.
          cells: Further columns of the table of episodes.
          reused: Stored statistics of features. All other statistics are computed.
        """
        num_rows = episode.num_steps - episode.final_observation_known
        label = f"episode {episode.key}"
        if self._version == "v2.1":
            self._check_times(num_rows, label)
        rows = self.sidecar.rows(episode)
        flags = _flags(episode, num_rows)
        arrays: dict[str, Any] = {name: flags[name] for name in self._flags}
        arrays = {column.name: rows[column.path] for column in self._columns} | arrays
        texts = {column.name for column in self._columns if column.field.is_text}
        images = {column.name: column for column in self._columns if column.is_image}
        numeric = [name for name in arrays if name not in {*texts, *images, *reused}]
        computed = {**reused, **statistics_by_column({name: arrays[name] for name in numeric})}
        for name, column in images.items():
            computed[name] = self._image_statistics(column, arrays[name], label, reused.get(name))
            arrays[name] = _image_column(arrays[name])
        statistics = {n: self._drop_unsupported(n, computed[n]) for n in arrays if n in computed}
        statistics = {name: kinds for name, kinds in statistics.items() if kinds}
        if self._texts:
            texts_by_style = {style: rows[path] for style, path in self._texts.items()}
            times = (np.arange(num_rows) / self._fps).astype(np.float32)
            arrays[PERSISTENT] = objects([replace_texts("null", texts_by_style, times)] * num_rows)
        clips = self._cameras.clips(episode, num_rows)
        new_clips = {name: clip for name, clip in clips.items() if name not in reused}
        statistics |= {name: reused[name] for name in clips if name in reused}
        statistics |= clip_statistics(new_clips, self._cameras.depths, self._encoded_features)
        return NewEpisode(arrays, self._task_texts(episode, num_rows), statistics, clips, cells)

    def _image_statistics(
        self, column: PlannedFeature, values: np.ndarray, label: str, reused: Statistics | None
    ) -> Statistics:
        """Returns the statistics of images, computed unless given; checks their shape."""
        images = [values[row] for row in sample_frames(len(values))]
        if reused is None:
            images = [pixels(image, column.field) for image in images]
        for image in images:
            shape: Any = (image_field(image) if isinstance(image, bytes) else image).shape
            if shape != self._shapes.setdefault(column.name, shape):
                raise self._size_error(column.name, shape, label)
        return reused or image_statistics(images)

    def _drop_unsupported(self, name: str, kinds: Statistics) -> Statistics:
        """Drops statistics of numeric features with "image" in the name, which LeRobot refuses."""
        channels = (3,) if self._version == "v2.1" else (1, 3)
        if "image" not in name:
            return kinds
        if kinds["mean"].size not in channels:
            return {}
        return {
            kind: value if kind == "count" else value.reshape(-1, 1, 1)
            for kind, value in kinds.items()
        }

    def _task_texts(self, episode: SourceEpisode, num_rows: int) -> list[str]:
        if not self._task:
            return [""] * num_rows
        steps = dict(leaves_at(episode.steps, None))
        if self._task in steps:
            return [as_text(value, "replace") for value in steps[self._task][:num_rows].tolist()]
        return [as_text(dict(leaves_at(episode.metadata, None))[self._task], "replace")] * num_rows

    def _check_times(self, num_rows: int, label: str) -> None:
        fps = self._fps
        distances = np.diff((np.arange(num_rows) / fps).astype(np.float32))
        if (abs(distances - 1 / fps) > _TIME_TOLERANCE_S).any():
            warnings.warn(
                f"{label} lasts {num_rows / fps:.0f} seconds: its time stamps of 32 bits are too "
                "coarse for LeRobot 0.3, which does not open such a dataset",
                stacklevel=2,
            )


def _find_task_texts(
    episodes: Episodes, fields: Mapping[str, Field], excluded: Collection[str]
) -> tuple[list[str], list[str]]:
    """Returns the texts of tasks for columns of indices, and the columns without a text table.

    Readers get the stored indices, which therefore must be the indices of the new table.
    """
    tables = {path: f.table for path, f in fields.items() if f.table and path not in excluded}
    task_table = table_in(episodes.metadata, TASKS)
    texts = list(task_table.values())
    is_counted = [*task_table] == [*range(len(texts))] and len({*texts}) == len(texts) > 0
    without = [path for path, table in tables.items() if table != TASKS or not is_counted]
    return texts if len(without) < len(tables) else [], without


def _is_text(field: Any) -> bool:
    return isinstance(field, Field) and field.is_text and not field.shape and not field.encoding


def _image_column(values: np.ndarray) -> Any:
    """Returns a column of image files."""
    files = [value if isinstance(value, bytes) else encode_png(value) for value in values]
    suffixes = [".jpg" if data.startswith(b"\xff\xd8") else ".png" for data in files]
    return image_array(files, [f"frame-{n:06d}{suffix}" for n, suffix in enumerate(suffixes)])


def _flags(episode: SourceEpisode, num_rows: int) -> dict[str, np.ndarray]:
    """Returns the flags of the end of an episode: done and truncated."""
    is_last = np.arange(num_rows) == num_rows - 1
    terminal = episode.steps.get(rlds.IS_TERMINAL)
    is_terminal = terminal is not None and bool(terminal[-1])
    return {DONE: is_last & is_terminal, TRUNCATED: is_last & bool(episode.truncated)}
