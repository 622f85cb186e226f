"""Exports of LeRobot episodes to LeRobot, with their rows and packets in the current layout."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

import rlds
from rlds.formats.lerobot import layout
from rlds.formats.lerobot.cameras import clip_statistics
from rlds.formats.lerobot.columns import DataColumn, data_column
from rlds.formats.lerobot.dataset_files import (
    DATASET_FILES,
    NewEpisode,
    Version,
    check_is_below,
    write_below,
)
from rlds.formats.lerobot.feature_statistics import (
    Statistics,
    column_statistics,
    column_statistics_like,
    image_statistics,
    match_shapes,
    read_statistics,
    sample_frames,
)
from rlds.formats.lerobot.final_files import are_staged, file_options, read_staged, write_staged
from rlds.formats.lerobot.kept_features import KeptFeatures
from rlds.formats.lerobot.language import (
    LANGUAGE,
    PERSISTENT,
    STYLES,
    SUBTASK_INDEX,
    SUBTASKS,
    SUBTASKS_TABLE,
    decode_texts,
    drop_rows,
    replace_texts,
)
from rlds.formats.lerobot.layout import Info
from rlds.formats.lerobot.modality import MODALITY, find_text_tables, rename_features
from rlds.formats.lerobot.small_files import decode_schema, read_subtasks
from rlds.formats.lerobot.source import EXTRA_FILES, ROW, LeRobotSource
from rlds.formats.lerobot.tables import image_array, tasks_table
from rlds.raw_files.tiff_images import encode_tiff
from rlds.raw_files.untrusted import source_errors
from rlds.sources import reading
from rlds.sources.encoded_clips import pixels
from rlds.sources.episode_fields import IMAGE_FILE
from rlds.sources.episodes import Episodes
from rlds.sources.sidecar import SIDECAR_KEY, Sidecar, SidecarWriter
from rlds.sources.source import Location, SourceEpisode, SourceError, files_of, with_random_access
from rlds.sources.text_tables import TASKS, TextTable, table_in
from rlds.sources.texts import as_text, as_texts
from rlds.sources.writing import Export, Placement
from rlds.video import CLIP, FIRST, VIDEO
from rlds.video.container import Clip, cut_clip, packets_of
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import leaves_at, lookup, nest
from tfds_files.png import encode_png

__all__ = ["LeRobotRows", "original_order"]

# Columns with positions of rows in an episode, which are renumbered after rows were dropped.
_FRAME, _TIME = "frame_index", "timestamp"


class LeRobotRows:
    """The writer of the rows of episodes from LeRobot, in the current layout.

    Unchanged episodes keep their statistics. For changed episodes, statistics are computed, rows
    are renumbered from 0, and clips are cut to the frames of the rows.

    Args:
      export: The export.
      features: The features of the episodes.
      version: The new version; by default, the version of the source.
      sizes: The sizes of files, as entries of `info.json`.

    Attributes:
      paths: The paths of features in steps, by name.
      task_columns: Further columns with indices of tasks.

    Raises:
      SourceError: The metadata of the source is invalid.
      ValueError: The version cannot hold the rows.
    """

    def __init__(
        self,
        export: Export,
        features: KeptFeatures,
        version: Version | None,
        sizes: Mapping[str, Any],
    ) -> None:
        episodes = export.episodes
        self._features, self.paths = features, features.paths
        metadata = episodes.metadata[layout.METADATA_KEY]
        self._spec = dict(leaves_at(episodes.spec, None))
        with source_errors(f"metadata of {files_of(episodes.source, 1)}"):
            self._files: Mapping[str, Mapping[str, str]] = metadata["files"]
            for name in self._files:
                check_is_below(name)
            schemas = metadata["schemas"]
            raw = {
                **metadata["info"],
                "features": features.info_entries(metadata["info"]["features"]),
                **sizes,
            }
            self.task_columns = self._find_task_columns(metadata, raw["features"])
            self._schema = features.schema(decode_schema(schemas["data"]), raw["features"])
            self._info = Info.from_json(raw, is_v3=schemas["episodes"] is not None)
            self._task_path = layout.task_path(self.paths)
            self._tasks = dict(sorted(table_in(episodes.metadata, TASKS).items()))
            columns, fps = self._info.features, self._info.fps
            self._columns = {f.name: data_column(f, columns.get(f.name)) for f in self._schema}
            self._episode_schema = schemas["episodes"] and decode_schema(schemas["episodes"])
        self._is_edited = episodes.has_random_access and not all(
            export.is_stored(index) for index in range(len(episodes))
        )
        self._is_subset = episodes.has_random_access and (
            self._is_edited or len(episodes) != raw.get("total_episodes")
        )
        self._subtasks = table_in(episodes.metadata, SUBTASKS_TABLE)
        sources = reading.roots(episodes.source)
        self._bases = bases = [base for base in sources if isinstance(base, LeRobotSource)]
        is_same = [*self._tasks] == [*range(len({*self._tasks.values()}))] and not self._is_subset
        is_same &= all(base.texts == self._tasks for base in bases)
        # With an unchanged table of tasks, no column is renumbered.
        self.task_columns = [] if is_same else self.task_columns
        self._version: Version = version or ("v3.0" if self._info.is_v3 else "v2.1")
        if self._version == "v2.1" and fps != int(fps):
            raise ValueError(f"fps: {fps}, but readers of version 2.1 take whole numbers only")
        self.files = functools.partial(
            DATASET_FILES[self._version],
            info=self._info.raw,
            schema=self._schema,
            split=episodes.split,
            episode_schema=self._episode_schema,
        )

    def _find_task_columns(
        self, metadata: Mapping[str, Any], features: dict[str, dict[str, Any]]
    ) -> list[str]:
        """Returns the further columns of task indices; marks them in `features`."""
        columns = [data_column(field, None) for field in decode_schema(metadata["schemas"]["data"])]
        text = self._files.get(MODALITY, {}).get("text", "{}")
        # Datasets that older releases converted have no `Field.table`.
        text_tables = find_text_tables(text, columns, metadata["info"]["features"])
        tables = {name: text_tables.get(old, "") for name, old in self._features.old_names.items()}
        for name, path in self.paths.items():
            field = self._spec.get(f"{rlds.STEPS}/{path}")
            if isinstance(field, Field) and field.table:
                tables[name] = field.table
        names = [n for n, t in tables.items() if t == TASKS and n not in layout.INDEX_COLUMNS]
        for name in names:
            # For renamed features and features of other datasets, modality.json lacks the table.
            if self._features.old_names.get(name) != name or text_tables.get(name) != TASKS:
                features[name] = {**features[name], layout.TABLE: TASKS}
        return names

    @property
    def unchecked(self) -> set[str]:
        """The fields with locations in files, or with a value that depends on options."""
        files = {path for path in self._spec if path.startswith(f"{VIDEO}/")}
        files -= {f"{VIDEO}/{self.paths[name]}/{CLIP}" for name in self._info.videos}
        flags = {f"{rlds.STEPS}/{name}" for name in (rlds.IS_TERMINAL, rlds.DISCOUNT)}
        return {"key", "truncated", ROW, *files, *flags}

    def placements(self) -> Sequence[Placement]:
        """See `Export`."""
        targets = {self._task_path: layout.TASK}
        for name in self._schema.names:
            targets |= {self.paths[name]: name, f"{IMAGE_FILE}/{self.paths[name]}": name}
        targets = {f"{rlds.STEPS}/{path}": target for path, target in targets.items()}
        for name in self._info.videos:
            for key in (CLIP, FIRST):
                targets[f"{VIDEO}/{self.paths[name]}/{key}"] = f"videos/{name}"
        targets |= {path: path for path in self._spec if path.startswith(f"{EXTRA_FILES}/")}
        targets[ROW] = "meta/episodes"
        targets |= {p: PERSISTENT for p in self._spec if p.startswith(f"{rlds.STEPS}/{LANGUAGE}/")}
        targets |= {f"{rlds.STEPS}/{path}": PERSISTENT for path in self._features.texts}
        names = [*layout.INDEX_COLUMNS, *self.task_columns]
        names += (_FRAME, _TIME, PERSISTENT) if self._is_edited else ()
        renumbered = {f"{rlds.STEPS}/{self.paths[name]}" for name in names if name in self.paths}
        return [
            Placement(path, targets[path], "renumbered", "positions in the new dataset")
            if path in renumbered
            else Placement(path, targets[path], "exact")
            for path in self._spec
            if path in targets
        ]

    def write(self, path: Path, export: Export) -> None:
        """Writes the episodes of an export."""
        sidecar = Sidecar.metadata_only(export.episodes, layout.METADATA_KEY)
        SidecarWriter.in_folder(path, sidecar).close()
        tasks = [] if export.is_part else list(self._tasks.values())
        if self._is_subset and tasks:
            used_texts = self._used_tasks(export.episodes)
            tasks = [text for text in tasks if text in used_texts]
        is_staged, options = are_staged(export), file_options(export)
        with self.files(path, tasks=tasks, **options) as files:
            for _ in write_staged(export, files, path) if is_staged else ():
                pass
            for episode in () if is_staged else export.iter_items(self._can_copy):
                if isinstance(episode, Location):
                    in_part = export.staged_with(export.index) is not None
                    files.add(self.read_staged(episode) if in_part else self._read_stored(episode))
                else:
                    is_stored = export.is_stored(export.index)
                    files.add(self._new_episode(episode, self._tasks, is_stored=is_stored))
            files.finish({})
        write_below(path, layout.DIGEST, json.dumps({SIDECAR_KEY: sidecar.digest}).encode())
        for name, content in self._files.items():
            if name != layout.STATS or self._version == "v2.1":  # Version 3.0 computes statistics.
                text = content.get("text", "")
                text = rename_features(text, self._features.names) if name == MODALITY else text
                data = text.encode() or base64.b64decode(content["base64"])
                write_below(path, name, data)
        if self._subtasks and read_subtasks(epath.Path(path)) != self._subtasks:
            table = tasks_table([*self._subtasks.values()], [*self._subtasks], "subtask")
            import_extra("pyarrow.parquet").write_table(table, path / SUBTASKS)

    def _used_tasks(self, episodes: Episodes) -> set[str]:
        """Returns the texts of tasks in the readable steps of episodes."""
        texts: set[str] = set()
        source = with_random_access(episodes.source)
        columns = [self.paths[name] for name in self.task_columns]
        for index in range(len(episodes)):
            with contextlib.suppress(SourceError):  # Reading the episode raises the error.
                paths = [self._task_path, *columns]
                steps = reading.read_steps(source, *episodes.locate(index), paths)
                if f"{rlds.STEPS}/{self._task_path}" in self._spec:
                    texts |= {as_text(value) for value in lookup(steps, self._task_path)}
                indices = {n for path in columns for n in np.unique(lookup(steps, path)).tolist()}
                texts |= {self._tasks[index] for index in indices if index in self._tasks}
        return texts

    def _can_copy(self, location: Location) -> bool:
        source = location.source
        if not isinstance(source, LeRobotSource):
            return False
        is_alike = {*source.task_columns} >= {*self.task_columns}
        is_alike &= source.subtasks.items() <= self._subtasks.items()
        return is_alike and source.can_be_copied(self._schema, self._version, self.paths)

    def read_staged(self, location: Location) -> NewEpisode:
        """Returns a staged episode."""
        return read_staged(location, self._schema, self.task_columns)

    def _read_stored(self, location: Location) -> NewEpisode:
        """Returns a stored episode, not decoded if possible."""
        source = location.source
        assert isinstance(source, LeRobotSource)
        rows = source.stored_episode(location.split, location.index, self._schema)
        if rows is None:
            episode = reading.read(source, location.split, location.index)
            return self._new_episode(episode, source.texts, is_stored=True)
        indices = {name: rows.task_indices[name] for name in self.task_columns}
        statistics = self._stored_statistics(rows.statistics)
        return dataclasses.replace(rows, statistics=statistics, task_indices=indices)

    def compared(self, episode: SourceEpisode) -> SourceEpisode:
        """Returns an episode for comparison, with the packets of its frames instead of clips."""
        metadata = dict(leaves_at(episode.metadata, None))
        for name, clip in self._clips(episode).items():
            metadata[f"{VIDEO}/{self.paths[name]}/{CLIP}"] = b"".join(packets_of(clip))
        steps = dict(leaves_at(episode.steps, None))
        if self._features.texts:  # Labels are read back as language texts.
            steps.pop(self.paths[PERSISTENT], None)
            labels = {f"{LANGUAGE}/{s}": p for p, s in self._features.texts.items() if p in steps}
            steps |= {path: steps.pop(label) for path, label in labels.items()}
            empty = np.full(episode.num_steps, "", object)
            steps = {**{f"{LANGUAGE}/{style}": empty for style in STYLES}, **steps}
        return dataclasses.replace(episode, steps=nest(steps), metadata=nest(metadata))

    def _clips(self, episode: SourceEpisode) -> dict[str, Clip]:
        metadata = dict(leaves_at(episode.metadata, None))
        clips = {}
        for name in self._info.videos:
            camera = f"{VIDEO}/{self.paths[name]}"
            data, start = bytes(metadata[f"{camera}/{CLIP}"]), int(metadata[f"{camera}/{FIRST}"])
            clips[name] = Clip(data, start, episode.num_steps)
        return clips

    def _new_episode(
        self, episode: SourceEpisode, known_tasks: TextTable, *, is_stored: bool
    ) -> NewEpisode:
        steps = dict(leaves_at(episode.steps, None))
        metadata = dict(leaves_at(episode.metadata, None))
        tasks = as_texts(steps.get(self._task_path, np.full(episode.num_steps, "", object)))
        clips = self._clips(episode)
        if not is_stored:
            self._renumber(steps)
            clips = {name: cut_clip(clip, 0, episode.num_steps) for name, clip in clips.items()}
        if self._features.texts or (not is_stored and PERSISTENT in self._features.old_names):
            steps[self.paths[PERSISTENT]] = self._language_column(steps)
        row: dict[str, Any] = json.loads(as_text(metadata[ROW]))
        arrays = {name: self._array(column, steps) for name, column in self._columns.items()}
        statistics = self._stored_statistics(read_statistics(row))
        if not is_stored or not statistics:
            template = statistics or self._first_statistics
            statistics = self._statistics(steps, clips, template)
        for column in self._features.added:
            if not column.field.is_text:
                statistics[column.name] = column_statistics(steps[column.path])
        for name in {SUBTASK_INDEX, *self.task_columns} & statistics.keys():
            # Task indices may have changed.
            statistics[name] = column_statistics_like(steps[self.paths[name]], statistics[name])
        indices = {name: np.asarray(steps[self.paths[name]]) for name in self.task_columns}
        extras = leaves_at(episode.metadata.get(EXTRA_FILES, {}), None)
        return NewEpisode(
            arrays,
            tasks.tolist(),
            statistics,
            clips,
            layout.user_cells(row),
            indices,
            known_tasks,
            extras={name: bytes(data) for name, data in extras if data},
        )

    def _renumber(self, steps: dict[str, np.ndarray]) -> None:
        """Renumbers the rows of an episode from 0, because LeRobot locates frames by time."""
        frames = steps[self.paths[_FRAME]]
        new_frames = frames - frames[:1]
        if _TIME in self.paths and frames[0]:
            column = steps[self.paths[_TIME]]
            old, new = ((n / self._info.fps).astype(column.dtype) for n in (frames, new_frames))
            steps[self.paths[_TIME]] = new + (column - old)
        steps[self.paths[_FRAME]] = new_frames
        if frames[0] and PERSISTENT in self._features.old_names:
            path, start = self.paths[PERSISTENT], float(frames[0] / self._info.fps)
            rows = drop_rows(steps[path][0], start, float(new_frames[-1] / self._info.fps))
            steps[path] = np.full(len(frames), json.dumps(rows, ensure_ascii=False), object)

    def _language_column(self, steps: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the language column, with the texts of label fields."""
        times = (np.arange(len(steps[self.paths[_FRAME]])) / self._info.fps).astype(np.float32)
        times = steps[self.paths[_TIME]] if _TIME in self.paths else times
        old_rows, before = "null", {}
        if PERSISTENT in self._features.old_names:
            column = as_texts(steps[self.paths[PERSISTENT]])
            old_rows, before = column[0], decode_texts({PERSISTENT: column}, times)
        fields = {f"{LANGUAGE}/{style}": style for style in STYLES} | dict(self._features.texts)
        texts = {style: as_texts(steps[path]) for path, style in fields.items() if path in steps}
        texts = {s: new for s, new in texts.items() if not np.array_equal(new, before.get(s, ""))}
        rows = replace_texts(old_rows, texts, times)
        return np.full(len(times), json.dumps(rows, ensure_ascii=False), object)

    def _array(self, column: DataColumn, steps: Mapping[str, np.ndarray]) -> Any:
        """Returns a column in the form of `NewEpisode`."""
        path, kind = self.paths[column.name], column.kind
        if kind == "image":
            names = map(as_text, steps[f"{IMAGE_FILE}/{path}"])
            files = [_encode_image(image) for image in steps[path]]
            return image_array(files, [name or None for name in names])
        if kind in ("numbers", "bytes"):
            return steps[path]
        texts = as_texts(steps[path])
        return objects(map(json.loads, texts)) if kind == "json" else texts

    def _stored_statistics(self, statistics: Mapping[str, Statistics]) -> dict[str, Statistics]:
        """Returns the stored statistics of an episode, by the new names of the features."""
        names = {old: new for new, old in self._features.old_names.items()}
        return {names[name]: statistics for name, statistics in statistics.items() if name in names}

    @functools.cached_property
    def _first_statistics(self) -> dict[str, Statistics]:
        """The stored statistics of the first episode of a source dataset, or empty."""
        for base in self._bases:
            with contextlib.suppress(SourceError):
                of_base = read_statistics(base.stored_row(base.splits[0], 0))
                if statistics := self._stored_statistics(of_base):
                    return statistics
        return {}

    def _statistics(
        self,
        steps: Mapping[str, np.ndarray],
        clips: Mapping[str, Clip],
        template: Mapping[str, Statistics],
    ) -> dict[str, Statistics]:
        """Returns the statistics of a changed episode, with the features and kinds of `template`.

        If `template` is empty, only numeric features have statistics.
        """
        clips_with_statistics = {name: clip for name, clip in clips.items() if name in template}
        computed = clip_statistics(clips_with_statistics, self._info.depths)
        for name, column in self._columns.items():
            path = self.paths[name]
            values = steps[path]
            if column.kind == "image" and name in template:
                field = self._spec[f"{rlds.STEPS}/{path}"]
                images = (pixels(values[row], field) for row in sample_frames(len(values)))
                computed[name] = image_statistics(images)
            elif values.dtype != object and (name in template or not template):
                computed[name] = column_statistics_like(values, template.get(name))
        return match_shapes(computed, template)


def original_order(episodes: Episodes) -> list[int] | None:
    """Returns the indices of episodes in the original order; None if it is unchanged.

    TFDS datasets have a random order.
    """
    if (examples := episodes.source.capabilities.examples) is None:
        return None
    indices = []
    for index in range(len(episodes)):
        split, position = episodes.locate(index)
        example = examples.folder[split].example(position, [ROW])
        indices.append(json.loads(as_text(dict(leaves_at(example, None))[ROW]))["episode_index"])
    return sorted(range(len(indices)), key=indices.__getitem__)


def _encode_image(image: Any) -> bytes:
    """Encodes an image as in LeRobot: depths become TIFF files."""
    if isinstance(image, bytes):
        return image
    return encode_png(image) if image.dtype == np.uint8 else encode_tiff(image)
