"""`rlds inspect`: the format, splits and fields of a dataset.

Only the JSON files of a TFDS dataset are read, without NumPy, so this is as fast as starting
Python. Other formats are opened with `rlds.sources.open`; episodes are read only on request.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import importlib.util
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import override

import tfds_files
from rlds_ecosystem.model.names import suggest_names
from rlds_ecosystem.model.nests import named_leaves
from rlds_ecosystem.model.texts import shorten
from rlds_tools.recording_facts import recording_facts
from rlds_tools.results import (
    Block,
    Result,
    Table,
    cell,
    count,
    next_commands,
    plain,
    size_text,
    text_of,
)

if TYPE_CHECKING:
    from rlds.robotics import DatasetMeaning
    from rlds.sources import Episodes

__all__ = [
    "FORMAT_NAMES",
    "EpisodeView",
    "InspectedField",
    "InspectedSplit",
    "Inspection",
    "LayoutProposal",
    "RecordFile",
    "StepView",
    "inspect",
    "inspect_episode",
    "inspect_step",
    "propose_layout",
    "shape_text",
    "with_meanings",
]

_STEPS = "steps"
_FLAGS = ("is_first", "is_last", "is_terminal")
# The maximum number of shown steps of an episode: first steps and last steps.
_MAX_SHOWN_STEPS = 20
# The maximum number of sentences about the meaning of actions.
_MAX_SHOWN_MEANINGS = 6


@dataclasses.dataclass(frozen=True)
class InspectedField:
    """A field of a step, or of an episode.

    Attributes:
      name: The path, such as "observation/camera".
      dtype: The dtype, such as "float32" or "string".
      shape: The shape in a step; None for a size that is not fixed.
      notes: More facts: the storage, the unit, the description of the author.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    notes: str = ""


@dataclasses.dataclass(frozen=True)
class InspectedSplit:
    """A split of a dataset. Values are None if they would need reading the episodes.

    Attributes:
      name: The name of the split.
      episodes: The number of its episodes.
      steps: The number of the steps of all episodes.
      files: The number of files.
      num_bytes: The size of the files in bytes.
      lengths: The smallest, the median and the largest number of steps of an episode.
    """

    name: str
    episodes: int | None
    steps: int | None = None
    files: int | None = None
    num_bytes: int | None = None
    lengths: tuple[int, float, int] | None = None


@dataclasses.dataclass(frozen=True)
class Inspection(Result):
    """The result of `rlds inspect`: format, splits, fields and metadata of a dataset.

    Attributes:
      path: The path of the data.
      format: The name of the format, a key of `rlds.sources.formats()`.
      name: The name of the dataset, with its config.
      version: The version; empty without one.
      file_format: The format of the files; empty if the format implies it.
      num_bytes: The size of its files in bytes.
      num_files: The number of its files.
      description: The description of the dataset.
      splits: The splits.
      step_fields: The fields of a step.
      episode_fields: The fields of an episode except the steps.
      metadata: The metadata of the dataset.
      robotics: The meaning of the fields of a published robot dataset; None for other datasets.
      tasks: The number of episodes of each task of a LeRobot dataset; empty if unknown.
      where: The condition of the counted episodes.
      meanings: The sentences about the meaning of vectors of the first split, if requested.
      meanings_by: The basis of the meanings: the last audit, or a number of episodes.
    """

    path: str
    format: str
    name: str
    version: str
    file_format: str
    num_bytes: int | None
    num_files: int | None
    description: str
    splits: tuple[InspectedSplit, ...]
    step_fields: tuple[InspectedField, ...]
    episode_fields: tuple[InspectedField, ...]
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    robotics: DatasetMeaning | None = None
    tasks: Mapping[str, int] = dataclasses.field(default_factory=dict)
    where: str | None = None
    meanings: tuple[str, ...] = ()
    meanings_by: str = ""

    @override
    def blocks(self) -> Iterator[Block]:
        notes = [
            " ".join(filter(None, [self.name, self.version])),
            FORMAT_NAMES.get(self.format, self.format),
            self.file_format,
            "" if self.num_files is None else count(self.num_files, "file"),
            "" if self.num_bytes is None else size_text(self.num_bytes),
        ]
        yield " · ".join(filter(None, notes))
        if self.description:
            yield _first_sentence(self.description)
        yield _split_table(self.splits)
        if self.step_fields:
            yield _field_table("field of a step", self.step_fields)
        if self.episode_fields:
            yield _field_table("field of an episode", self.episode_fields)
        if self.robotics is not None:
            yield from _robotics_blocks(self.robotics)
        if self.meanings_by:
            meanings = self.meanings[:_MAX_SHOWN_MEANINGS]
            unknown = "" if meanings else ": unknown"
            yield f"meaning of actions and observations, by {self.meanings_by}{unknown}"
            yield from (f"  {sentence}" for sentence in meanings)
            if len(meanings) < len(self.meanings):
                yield f"  {len(self.meanings) - len(meanings)} more: rlds audit"
        steps = sum(split.steps or 0 for split in self.splits)
        yield from recording_facts(self.metadata, steps, self.tasks)
        if self.metadata:
            yield f"metadata: {', '.join(self.metadata)} (--json shows the values)"
        if self.where is not None:
            yield next_commands(["episodes", self.path, "--where", self.where])
        elif self.step_fields:
            split = ["--split", self.splits[0].name] if len(self.splits) > 1 else []
            yield next_commands(
                ["inspect", self.path, "--episode", 0, *split], ["validate", self.path]
            )


FORMAT_NAMES = {"tfds": "TFDS dataset", "envlogger": "EnvLogger log", "minari": "Minari dataset"}


def _first_sentence(text: str, max_length: int = 160) -> str:
    line = " ".join(text.split())
    sentence, dot, _ = line.partition(". ")
    line = sentence + dot.strip()
    return shorten(line, max_length)


def _split_table(splits: Sequence[InspectedSplit]) -> Table:
    columns = ["split", ">episodes", ">steps"]
    rows = [[split.name, cell(split.episodes), cell(split.steps)] for split in splits]
    if any(split.lengths for split in splits):
        columns.append(">length (min median max)")
        for row, split in zip(rows, splits):
            row.append("  ".join(f"{n:,g}" for n in split.lengths) if split.lengths else "?")
    return Table(columns, rows)


def _field_table(heading: str, fields: Sequence[InspectedField]) -> Table:
    rows = [
        [f"  {field.name}", field.dtype, shape_text(field.shape), field.notes] for field in fields
    ]
    return Table([heading, "dtype", "shape", "notes"], rows)


def shape_text(shape: Sequence[int | None]) -> str:
    """Formats a shape like NumPy, with `any` for sizes that are not fixed."""
    inner = ", ".join("any" if size is None else str(size) for size in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


@dataclasses.dataclass(frozen=True)
class RecordFile(Result):
    """A file of records outside of any dataset.

    Attributes:
      path: The path.
      file_format: The format.
      records: The number of records.
      num_bytes: The size in bytes.
    """

    path: str
    file_format: str
    records: int
    num_bytes: int

    @override
    def blocks(self) -> Iterator[Block]:
        yield (
            f"{os.path.basename(self.path)} · {self.file_format} file · "
            f"{count(self.records, 'record')} · {size_text(self.num_bytes)}"
        )
        yield next_commands(["inspect", os.path.dirname(self.path) or "."])


@dataclasses.dataclass(frozen=True)
class LayoutProposal(Result):
    """A proposed layout for files of unknown format.

    Attributes:
      path: The path of the files.
      layout: The layout in YAML, with `???` in lines that the user has to fill in.
      reason: The reason for the proposal; empty if the user asked for one.
    """

    path: str
    layout: str
    reason: str = ""

    @property
    @override
    def exit_code(self) -> int:
        return 1 if self.reason else 0

    @override
    def blocks(self) -> Iterator[Block]:
        yield from filter(None, [self.reason])
        yield from self.layout.splitlines()
        yield "Save the proposal as mine.yaml, and replace each ???. Then:"
        yield next_commands(["inspect", self.path, "--layout", "mine.yaml"])


@dataclasses.dataclass(frozen=True)
class EpisodeView(Result):
    """An episode.

    Attributes:
      path: The path of the dataset.
      split: The split.
      episode: The index of the episode in the split.
      key: The permanent name of the episode in its source.
      num_steps: The number of its steps.
      total_reward: The sum of its rewards; None without rewards, or with several in a step.
      truncated: Whether the episode ended without a terminal state.
      complete: Whether the source holds the complete episode.
      final_observation_known: Whether the last step has a real observation.
      metadata: The fields of the episode except the steps.
      steps: A summary of some steps: their index, and shortened values of their fields.
    """

    path: str
    split: str
    episode: int
    key: str
    num_steps: int
    total_reward: float | None
    truncated: bool
    complete: bool
    final_observation_known: bool
    metadata: Mapping[str, Any]
    steps: tuple[Mapping[str, str], ...]

    @override
    def blocks(self) -> Iterator[Block]:
        notes = [
            f"{self.split} episode {self.episode} ({self.key})",
            count(self.num_steps, "step"),
            "" if self.total_reward is None else f"return {self.total_reward:.6g}",
            "truncated" if self.truncated else "terminal",
            "" if self.complete else "incomplete",
            "" if self.final_observation_known else "final observation unknown",
        ]
        yield " · ".join(filter(None, notes))
        if self.metadata:
            rows = [[name, _value_text(value, 70)] for name, value in named_leaves(self.metadata)]
            yield Table(["field of the episode", "value"], rows)
        if self.steps:
            first_column, *columns = self.steps[0]
            yield Table([f">{first_column}", *columns], [list(row.values()) for row in self.steps])
        if len(self.steps) < self.num_steps:
            yield f"showing {len(self.steps)} of {self.num_steps:,} steps"
        yield next_commands(["inspect", self.path, "--episode", self.episode, "--step", 0])


@dataclasses.dataclass(frozen=True)
class StepView(Result):
    """A step.

    Attributes:
      path: The path of the dataset.
      split: The split.
      episode: The index of the episode.
      step: The index of the step.
      fields: The values of its fields, by path; shape and range of images.
    """

    path: str
    split: str
    episode: int
    step: int
    fields: Mapping[str, Any]

    @override
    def blocks(self) -> Iterator[Block]:
        yield f"{self.split} episode {self.episode}, step {self.step}"
        rows = [
            [name, str(value.dtype), shape_text(value.shape), _value_text(value, 70)]
            for name, value in self.fields.items()
        ]
        yield Table(["field", "dtype", "shape", "value"], rows)

    @override
    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "fields": plain(self.fields)}


def inspect(
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    where: str | None = None,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Inspection | RecordFile:
    """Returns the format, the splits and the fields of a path. No episode is read.

    Args:
      path: A folder or a file, here or in an object store.
      split: The only split to show; all if None.
      where: A condition on the episodes to count, in SQL; see `rlds.sources.open`. Episodes are
        read for it, unless the dataset has a table of episodes.
      format: The name of the format, if it cannot be recognized.
      options: Options of the format; see `rlds.sources.open`.

    Returns:
      The inspection of the dataset; a `RecordFile` for a single file of records.

    Raises:
      FileNotFoundError: The path does not exist.
      KeyError: The dataset lacks the split; the message lists the splits.
      ValueError: The data is damaged, or its format is unknown; the message has the location.

    >>> import tempfile
    >>> import numpy as np
    >>> import tfds_files
    >>> x = tfds_files.Tensor(dtype=np.dtype(np.float32))
    >>> steps = tfds_files.Dataset(feature=tfds_files.Features(features={"reward": x}))
    >>> directory = tempfile.mkdtemp()
    >>> features = tfds_files.Features(features={"steps": steps})
    >>> with tfds_files.append_to(directory, features, "tiny") as writer:
    ...     writer.add({"steps": {"reward": np.ones(3, np.float32)}})
    >>> print(inspect(directory).splits[0].episodes)
    1
    """
    inspected = _inspect(os.fspath(path), format, options or {})
    if split is None and where is None:
        return inspected
    splits = inspected.splits if isinstance(inspected, Inspection) else ()
    selected_splits = tuple(s for s in splits if split in (None, s.name))
    if not selected_splits or isinstance(inspected, RecordFile):
        split_names = suggest_names(split or "", [s.name for s in splits])
        raise KeyError(f"{inspected.path}: no split {split!r}; {split_names}")
    if where is not None:
        from rlds import sources

        arguments: dict[str, Any] = {"format": inspected.format, **(options or {})}
        matching = (sources.open(path, s.name, **arguments) for s in selected_splits)
        selected_splits = tuple(_count_matching(episodes, where) for episodes in matching)
    return dataclasses.replace(inspected, splits=selected_splits, tasks={}, where=where)


def with_meanings(dataset: Result, options: Mapping[str, Any]) -> Result:
    """Adds the meaning of actions to an `Inspection`.

    The meaning comes from the last audit, or is estimated from up to 20 episodes in a second. For
    TFDS datasets, only an audit counts, so that other datasets need not load `rlds`.

    Args:
      dataset: The inspection.
      options: Options of the format.
    """
    if not isinstance(dataset, Inspection) or not dataset.splits or dataset.where:
        return dataset
    path = dataset.path
    actions = (field for field in dataset.step_fields if field.name.split("/")[0] == "action")
    is_tfds, has_floats = dataset.format == "tfds", any("float" in field.dtype for field in actions)
    audits = (f"{folder}.rlds/audit-*" for folder in ("", "*/", "*/*/"))
    if "://" in path or not has_floats:
        return dataset
    if is_tfds and not any(glob.glob(pattern, root_dir=path) for pattern in audits):
        return dataset
    from rlds import auditing, sources
    from rlds.sources.audit_rows import meanings_in
    from rlds.sources.episode_table import audit_of

    with contextlib.suppress(ImportError, OSError, ValueError):  # `rlds validate` reports errors.
        episodes = sources.open(path, dataset.splits[0].name, format=dataset.format, **options)
        audit = audit_of(episodes.source, episodes.split)
        if audit is not None and (texts := meanings_in(audit)):
            return dataclasses.replace(dataset, meanings=tuple(texts), meanings_by="the last audit")
        if episodes.has_random_access and not is_tfds:
            vectors = auditing.vector_meanings(episodes, most=20, seconds=1.0)
            by = f"a sample of {count(vectors[0].num_episodes, 'episode')}"
            has_kinds = any(e.kind != "unknown" for v in vectors for e in v.elements)
            sentences = (text for vector in vectors for text in vector.sentences() if has_kinds)
            return dataclasses.replace(dataset, meanings=tuple(sentences), meanings_by=by)
    return dataset


def _count_matching(episodes: Episodes, where: str) -> InspectedSplit:
    """Returns the number and the lengths of the episodes that match a condition."""
    lengths = episodes.where(where).table().arrow(["steps"])["steps"].to_numpy()
    return InspectedSplit(episodes.split, len(lengths), int(sum(lengths)), lengths=_range(lengths))


def _inspect(path: str, format: str | None, options: Mapping[str, Any]) -> Inspection | RecordFile:
    folder: Any = path
    if "://" in path:
        from rlds import sources

        format = format or sources.format_of(path)
        folder = tfds_files.find_folder(path) if format == "tfds" else path
    if not options and (_has_only_tfds(path) or _may_be_tfds(path, format)):
        try:
            return _from_summary(path, tfds_files.summarize(folder))
        except (FileNotFoundError, NotADirectoryError):
            pass  # The path may have another format.
    if format is None and path.endswith(tuple(_RECORD_FORMATS)) and os.path.isfile(path):
        return _count_records(path)
    try:
        return _from_source(path, format, options)
    except ValueError as error:
        from rlds.sources.dataset_search import find_datasets, several_datasets

        datasets = [] if format or not os.path.isdir(path) else sorted(find_datasets(path, 3))
        if len(datasets) < 2:
            raise
        raise ValueError(several_datasets(path, datasets)) from error


def _has_only_tfds(path: str) -> bool:
    """Returns True if a folder holds only a TFDS dataset, so that `rlds` need not be loaded."""
    if not os.path.isfile(os.path.join(path, "features.json")):
        return False
    with os.scandir(path) as entries:
        folders = [entry.name for entry in entries if entry.name[0] != "." and entry.is_dir()]
    return not folders and not os.path.exists(os.path.join(path, "metadata.riegeli"))


def _may_be_tfds(path: str, format: str | None) -> bool:
    from rlds.sources.dataset_search import is_hugging_face_dataset, marked_formats

    is_tfds = format == "tfds" or (format is None and len(marked_formats(path)) < 2)
    return is_tfds and not is_hugging_face_dataset(path)


def inspect_episode(
    path: str | os.PathLike[str],
    episode: int,
    *,
    split: str | None = None,
    where: str | None = None,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> EpisodeView:
    """Shows an episode: its metadata, and its first and last steps.

    Args:
      path: A folder or a file, here or in an object store.
      episode: The index of the episode; negative ones count from the end.
      split: The split of the episode; needed if there are several.
      where: A condition on the episodes that are indexed, in SQL; see `rlds.sources.open`.
      format: The name of the format, if it cannot be recognized.
      options: Options of the format; see `rlds.sources.open`.

    Raises:
      IndexError: The index of the episode is out of range.
      KeyError: The dataset lacks the split.
      SourceError: The episode is damaged; the message has the location.
    """
    from rlds import sources

    episodes = sources.open(path, split, format=format, where=where, **(options or {}))
    read = episodes.episode(episode)
    num_steps = read.num_steps
    half = _MAX_SHOWN_STEPS // 2
    shown_steps = [i for i in range(num_steps) if i < half or i >= num_steps - half]
    return EpisodeView(
        path=os.fspath(path),
        split=episodes.split,
        episode=episodes.stored_index(episode),
        key=read.key,
        num_steps=num_steps,
        total_reward=read.total_reward,
        truncated=read.truncated,
        complete=read.complete,
        final_observation_known=read.final_observation_known,
        metadata=dict(read.metadata),
        steps=tuple(_step_row(read.steps, i) for i in shown_steps),
    )


def inspect_step(
    path: str | os.PathLike[str],
    episode: int,
    step: int,
    *,
    split: str | None = None,
    where: str | None = None,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> StepView:
    """Shows the values of a step; images are decoded.

    Args:
      path: A folder or a file, here or in an object store.
      episode: The index of the episode; negative ones count from the end.
      step: The index of the step; negative ones count from the end.
      split: The split of the episode; needed if there are several.
      where: A condition on the episodes that are indexed, in SQL; see `rlds.sources.open`.
      format: The name of the format, if it cannot be recognized.
      options: Options of the format; see `rlds.sources.open`.

    Raises:
      IndexError: The index of the episode or of the step is out of range.
      KeyError: The dataset lacks the split.
      SourceError: The episode is damaged; the message has the location.
    """
    import numpy as np

    from rlds import sources
    from rlds.sources.video_frames import with_frames
    from rlds.video import VIDEO

    episodes = sources.open(path, split, format=format, where=where, **(options or {}))
    if VIDEO in episodes.spec and importlib.util.find_spec("av"):
        episodes = with_frames(episodes)
    read = episodes.episode(episode)
    if not -read.num_steps <= step < read.num_steps:
        raise IndexError(f"no step {step}; episode {episode} has {count(read.num_steps, 'step')}")
    step %= read.num_steps
    columns = episodes.columns(episode, start=step, stop=step + 1)
    fields = {name: np.asarray(column[0]) for name, column in named_leaves(columns)}
    return StepView(os.fspath(path), episodes.split, episodes.stored_index(episode), step, fields)


def propose_layout(path: str | os.PathLike[str], reason: str = "") -> LayoutProposal:
    """Proposes a layout for files, by the names and shapes of their arrays.

    Args:
      path: A file or a folder.
      reason: The reason for the proposal.

    Raises:
      ValueError: No file can be described by a layout, or a file is damaged.
    """
    from rlds.formats.layout.proposals import propose_layout

    return LayoutProposal(os.fspath(path), propose_layout(path), reason)


# --- The meaning of the fields of a robot dataset.


def _robotics_blocks(meaning: DatasetMeaning) -> Iterator[Block]:
    notes = [
        meaning.robot,
        "" if meaning.control_hz is None else f"{meaning.control_hz:g} Hz",
        f"gripper: {meaning.gripper}",
        meaning.confidence,
    ]
    yield f"known dataset {meaning.name}: {' · '.join(filter(None, notes))}"
    rows = [
        [
            f"  {element}",
            dimension.name,
            f"{dimension.field}[{dimension.element}]",
            f"{dimension.unit}, assumed" if "unit" in dimension.assumed else dimension.unit,
            dimension.frame,
            dimension.range,
            dimension.doc,
        ]
        for element, dimension in enumerate(meaning.action)
    ]
    yield Table(["action", "name", "field", "unit", "frame", "range", "description"], rows)
    yield from (f"known defect: {defect}" for defect in meaning.defects)
    yield from (f"differs from the published dataset: {text}" for text in meaning.disagreements)


def _meaning(name: str, metadata: Mapping[str, Any]) -> DatasetMeaning | None:
    """Returns the robotics meaning of a dataset. Loads `rlds` only for published datasets."""
    spec = importlib.util.find_spec("rlds")
    folders = (spec and spec.submodule_search_locations) or []
    tables = [os.path.join(folder, "robotics", "datasets.json") for folder in folders]
    if "rlds_robotics" not in metadata and not any(_is_named_in(table, name) for table in tables):
        return None
    from rlds.robotics import find_meaning

    try:
        return find_meaning(name, metadata)
    except ValueError:
        return None  # `rlds validate` reports the error of the metadata.


def _is_named_in(table: str, name: str) -> bool:
    with open(table, encoding="utf-8") as file:
        return f'"{name}"' in file.read()


# --- TFDS datasets.


def _from_summary(path: str, summary: tfds_files.FolderSummary) -> Inspection:
    return Inspection(
        path=path,
        format="tfds",
        name=f"{summary.name}/{summary.config_name}".rstrip("/"),
        version=summary.version,
        file_format=summary.file_format,
        num_bytes=sum(split.num_bytes for split in summary.splits),
        num_files=sum(len(split.shard_lengths) for split in summary.splits),
        description=summary.description,
        splits=tuple(
            InspectedSplit(
                name=split.name,
                episodes=sum(split.shard_lengths),
                steps=recorded_steps(summary.metadata, split.name),
                files=len(split.shard_lengths),
                num_bytes=split.num_bytes,
            )
            for split in summary.splits
        ),
        step_fields=_flags_last(
            _inspect_field(field, 1, summary.metadata)
            for field in summary.fields
            if field.path[:1] == (_STEPS,)
        ),
        episode_fields=tuple(
            _inspect_field(field, 0, summary.metadata)
            for field in summary.fields
            if field.path[:1] != (_STEPS,)
        ),
        metadata=summary.metadata,
        robotics=_meaning(summary.name, summary.metadata),
    )


def recorded_steps(metadata: Mapping[str, Any], split: str) -> int | None:
    """Returns the number of steps that a conversion of this project recorded in metadata."""
    conversion = metadata.get("conversion")
    splits = conversion.get("splits", {}) if isinstance(conversion, Mapping) else {}
    steps = splits.get(split, {}).get("steps") if isinstance(splits, Mapping) else None
    return steps if isinstance(steps, int) else None


def _inspect_field(field: tfds_files.FieldSummary, skip: int, metadata: Any) -> InspectedField:
    for key in ("rlds_fields", "/".join(field.path)):
        metadata = metadata.get(key) if isinstance(metadata, Mapping) else None
    metadata = metadata if isinstance(metadata, Mapping) else {}
    notes = [
        field.kind,
        "stored as bytes" if field.encoding == "bytes" else field.encoding,
        f"in {metadata['unit']}" if "unit" in metadata else "",
        str(metadata["kind"]) if "kind" in metadata else "",
        _first_sentence(field.doc, 60),
    ]
    name = "/".join(field.path[skip:])
    return InspectedField(name, field.dtype, field.shape, "; ".join(filter(None, notes)))


def _flags_last(fields: Iterable[InspectedField]) -> tuple[InspectedField, ...]:
    """Returns the fields of a step in order, with the flags at the end."""
    fields = list(fields)
    flags = [field for field in fields if field.name in _FLAGS]
    return (*(field for field in fields if field.name not in _FLAGS), *flags)


# --- Other formats.

_RECORD_FORMATS = {".riegeli": "riegeli", ".array_record": "array_record", ".tfrecord": "tfrecord"}


def _count_records(path: str) -> RecordFile:
    suffix = os.path.splitext(path)[1]
    if suffix == ".riegeli":
        import riegeli

        with riegeli.RecordReader(open(path, "rb")) as reader:
            records = sum(1 for _ in reader.read_records())
    else:
        records = len(tfds_files.open_record_file(path, _RECORD_FORMATS[suffix]))
    return RecordFile(path, _RECORD_FORMATS[suffix], records, os.path.getsize(path))


def _from_source(path: str, format: str | None, options: Mapping[str, Any]) -> Inspection:
    from rlds import sources
    from rlds.sources import reading
    from rlds.sources.dataset_search import marked_formats
    from rlds_ecosystem.files import stores

    if format is None:
        formats = ["layout"] if "layout" in options else marked_formats(path)
        format = formats[0] if len(formats) == 1 else sources.format_of(path)
    source = sources.formats()[format].source(path, **options)
    files = [stores.as_path(file) for file in source.inputs()]
    tasks: Mapping[str, int] = {}
    if format == "lerobot":
        from rlds.formats.lerobot.episode_table import episodes_of_tasks

        tasks = episodes_of_tasks(stores.as_path(path))
    splits, fields = [], {}
    for name in source.splits:
        episodes = sources.Episodes(source, name, format=format)
        summaries = episodes.lengths()
        lengths = None if summaries is None else summaries.num_steps.tolist()
        fields = episodes.spec
        splits.append(
            InspectedSplit(
                name=name,
                episodes=reading.count(source, name),
                steps=None if lengths is None else int(sum(lengths)),
                lengths=None if lengths is None else _range(lengths),
            )
        )
    return Inspection(
        path=path,
        format=format,
        name=os.path.basename(path.rstrip("/")) or path,
        version="",
        file_format="",
        num_bytes=sum(file.stat().length for file in files),
        num_files=len(files),
        description=source.source_info.description,
        splits=tuple(splits),
        step_fields=_flags_last(_inspect_fields(fields.pop(_STEPS, {}))),
        episode_fields=tuple(_inspect_fields(fields)),
        metadata=source.source_info.metadata,
        robotics=_meaning(source.source_info.name, source.source_info.metadata),
        tasks=tasks,
    )


def _range(lengths: Sequence[int]) -> tuple[int, float, int] | None:
    import numpy as np

    if not len(lengths):
        return None
    return int(np.min(lengths)), float(np.median(lengths)), int(np.max(lengths))


def _inspect_fields(fields: Mapping[str, Any]) -> Iterator[InspectedField]:
    from rlds_ecosystem.model import fields as model_fields

    for name, field in named_leaves(fields):
        if not isinstance(field, model_fields.Field):
            yield InspectedField(name, "", (), model_fields.fields_text(field))
            continue
        notes = [field.encoding.upper(), *field.meanings, _first_sentence(field.doc, 60)]
        dtype = "string" if field.is_text else field.column_dtype.name
        yield InspectedField(name, dtype, field.shape, "; ".join(filter(None, notes)))


# --- Values.


def _step_row(steps: Mapping[str, Any], index: int) -> dict[str, str]:
    row = {"step": str(index)}
    flags = [name.removeprefix("is_") for name in _FLAGS if name in steps and steps[name][index]]
    for name, column in named_leaves(steps):
        if name not in _FLAGS:
            row[name] = _value_text(column[index], 24)
    return {**row, "flags": " ".join(flags)}


def _value_text(value: Any, max_length: int) -> str:
    """Formats a value in a few characters: large arrays by their shape and range."""
    import numpy as np

    array = np.asarray(value)
    if array.dtype.kind in "OSU" and array.ndim == 0:
        value = array.item()
        text = text_of(value)
        if isinstance(value, bytes) and value.startswith((b"\x89PNG", b"\xff\xd8")):
            text = f"an image file of {size_text(len(value))}"
    elif array.size > 6 and array.dtype.kind in "biuf" and array.size:
        text = f"{array.dtype}{list(array.shape)} {array.min():.4g} … {array.max():.4g}"
    else:
        text = np.array2string(array, precision=4, separator=" ", max_line_width=10_000)
    return shorten(" ".join(text.split()), max_length)
