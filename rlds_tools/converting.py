"""`rlds convert`: the conversion of data in any format to a TFDS dataset or to another format.

Only the builders of published datasets load TensorFlow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from rlds_ecosystem.model.names import suggest_names
from rlds_ecosystem.model.texts import printable
from rlds_tools.results import Block, Result, Table, count, next_commands

if TYPE_CHECKING:
    from rlds.sources import AnySource, Placement
    from tfds_builders.builder import SourceBuilder

__all__ = [
    "FILE_FORMATS",
    "Conversion",
    "ExportResult",
    "builders",
    "convert",
    "dataset_name",
    "export",
    "find_builder",
    "targets",
]

FILE_FORMATS = ("tfrecord", "array_record")


@dataclasses.dataclass(frozen=True)
class Conversion(Result):
    """The result of a conversion to a TFDS dataset: path, splits, and skipped episodes.

    Attributes:
      path: The path of the new dataset.
      to: The new format.
      splits: The counts of each split, and the skipped damaged episodes, as in
        `info.metadata["conversion"]`.
    """

    path: str
    to: str
    splits: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    @override
    def blocks(self) -> Iterator[Block]:
        yield self.path
        for split, report in self.splits.items():
            counts = {name: value for name, value in report.items() if isinstance(value, int)}
            words = [f"{value:,} {name.replace('_', ' ')}" for name, value in counts.items()]
            yield f"{split}: {', '.join(words)}"
            for episode in report.get("left_out", ()):
                yield printable(f"  left out: {episode['key']}: {episode['why']}")
        yield next_commands(["inspect", self.path], ["validate", self.path])


@dataclasses.dataclass(frozen=True)
class ExportResult(Result):
    """The result of an export or of its dry run: placements of fields, skipped episodes.

    Attributes:
      path: The path of the file or the folder.
      to: The new format.
      is_written: Whether the data was written; False for a dry run.
      episodes: The number of episodes.
      steps: The number of steps.
      fields: The placement of each field: `field`, `place`, `how` and `why`, see
        `rlds.sources.Placement`.
      left_out: The problems of the skipped damaged episodes.
      is_share: Whether only a share of the export was written.
    """

    path: str
    to: str
    is_written: bool
    episodes: int
    steps: int
    fields: tuple[Placement, ...]
    left_out: tuple[str, ...] = ()
    is_share: bool = False

    @override
    def blocks(self) -> Iterator[Block]:
        if self.is_share:
            yield f"{count(self.episodes, 'episode')} in {self.path}"
            yield "when all shares are there, repeat the command without --part"
            return
        yield self.path if self.is_written else f"{self.path}: plan, nothing was written"
        totals = f"{count(self.episodes, 'episode')}, {count(self.steps, 'step')}"
        yield totals if self.is_written else f"fields in the format {self.to}"
        placements = [f for f in self.fields if not self.is_written or f.how != "exact" or f.why]
        if self.is_written and not placements:
            yield "the format holds all fields"
        if placements:
            rows = [[field.field, field.place, field.how, field.why] for field in placements]
            yield Table(["field", "place", "how", "why"], rows)
        if any(field.how == "sidecar" for field in placements):
            yield "sidecar: stored in a file next to the data that only rlds reads"
        if any(field.how == "sidecar" and field.field.startswith("video/") for field in placements):
            yield "cameras in the sidecar: pass -O video=frames to store them as images in the data"
        for error in self.left_out:
            yield printable(f"left out: {error}")
        if self.is_written:
            yield next_commands(["inspect", self.path], ["validate", self.path])


def targets() -> tuple[str, ...]:
    """Returns the formats that `rlds convert` writes: TFDS file formats, and all exports."""
    from rlds import sources

    return (*FILE_FORMATS, *(name for name in sources.exports() if name != "tfds"))


def export(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    to: str,
    split: str | None = None,
    where: str | None = None,
    labels: Sequence[str] | None = None,
    action_as: str | None = None,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
    allow_loss: bool = False,
    plan: bool = False,
    skip_damaged: bool = False,
    verify: bool = True,
    progress: bool | None = None,
    part: tuple[int, int] | None = None,
    **sharing: Any,
) -> ExportResult:
    """Converts data of any format to another format; see `rlds.sources.export`.

    Args:
      source: The path of the data.
      target: The path of the new file or folder.
      to: The format, one of `rlds.sources.exports()`.
      split: The split, or a slice of it such as `train[:10%]`; needed if there are several splits.
      where: A condition on episodes, in SQL; see `rlds.sources.open`.
      labels: The layers of labels that become fields, see `rlds.labels.labelled`; all if empty.
      action_as: The kind that the actions get, "delta" or "absolute"; see `rlds.editing.ActionAs`.
      format: The format of the source, if it cannot be recognized.
      options: Options of the source.
      target_options: Options of the new format.
      allow_loss: Whether fields may change, or be lost.
      plan: Whether to return only the placement of each field, without writing.
      skip_damaged: Whether to skip episodes that cannot be read.
      verify: Whether to compare the written data with the source.
      progress: Whether to show a progress bar; if None, on a terminal.
      part: The index of the share of the work to do, and the number of shares.
      **sharing: `jobs`, `at_once`, `draft`, `beam_runner` and `beam_options`.

    Raises:
      FileExistsError: The target exists; it is not changed.
      SourceError: The source is damaged, or its format is unknown.
      ValueError: The format cannot hold some fields; the message names them.
    """
    from rlds.conversion import exporting

    episodes = _select_episodes(source, split, where, labels, action_as, format, options or {})
    if episodes is not source:
        split = None
    arguments: dict[str, Any] = {
        "split": split,
        "source_format": format,
        "source_options": options,
        **(target_options or {}),
    }
    if plan:
        writer = exporting.prepare(episodes, to, **arguments)
        writer.check(target)
        return ExportResult(os.fspath(target), to, False, 0, 0, tuple(writer.placements()))
    exported = exporting.export(
        episodes,
        to,
        target,
        allow_loss=allow_loss,
        skip_damaged=skip_damaged,
        verify=verify,
        progress=progress,
        part=part,
        **sharing,
        **arguments,
    )
    steps, is_share = exported.num_steps or 0, part is not None
    content = (exported.num_episodes, steps, exported.placements, exported.left_out)
    return ExportResult(exported.path, to, not is_share, *content, is_share)


def _select_episodes(
    source: str | os.PathLike[str],
    split: str | None,
    where: str | None,
    labels: Sequence[str] | None,
    action_as: str | None,
    format: str | None,
    options: Mapping[str, Any],
) -> Any:
    """Returns the episodes to convert, with changed fields; the source if it stays as it is."""
    if where is None and labels is None and action_as is None:
        return source
    from rlds.editing.action_kinds import ActionsView
    from rlds.labels import labelled
    from rlds.sources import open

    episodes = open(source, split, format=format, where=where, **options)
    episodes = episodes if labels is None else labelled(episodes, labels or None)
    return episodes if action_as is None else episodes.through(ActionsView, action_as)


def convert(
    source: str | os.PathLike[str] | None,
    directory: str | os.PathLike[str] | None,
    *,
    to: str = "tfrecord",
    dataset: str | None = None,
    name: str | None = None,
    version: str | None = None,
    where: str | None = None,
    labels: Sequence[str] | None = None,
    action_as: str | None = None,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    quiet_process: bool = False,
    progress: bool | None = None,
    num_shards: int | None = None,
    beam_runner: str | None = None,
    beam_options: Sequence[str] = (),
    **storage: Any,
) -> Conversion:
    """Converts data of any format to a TFDS dataset; see `tfds_builders.convert`.

    Args:
      source: The path of the data; None to download the published `dataset`.
      directory: The parent directory of datasets: the new one is `<directory>/<name>/<version>`.
        The data directory of TFDS if None.
      to: One of `FILE_FORMATS`.
      dataset: A builder of `tfds_builders` for the data, with its config if any, such as
        `rlds_d4rl/hopper-medium-v2`.
      name: The name of the dataset; by default the name of the builder, or of the source without
        the characters that TFDS forbids.
      version: The version; by default the version of a TFDS source, or "1.0.0".
      where: A condition on episodes, in SQL; see `rlds.sources.open`.
      labels: The layers of labels that become fields, see `rlds.labels.labelled`; all if empty.
      action_as: The kind that the actions get, "delta" or "absolute"; see `rlds.editing.ActionAs`.
      format: The format of the source, if it cannot be recognized.
      options: Options of the source, see `rlds.sources.formats()[format].options`.
      quiet_process: Whether to silence the loaded libraries for the rest of the process.
      progress: Whether to show a progress bar; if None, on a terminal.
      num_shards: The number of files of each split.
      beam_runner: The runner, if Apache Beam is to do the work.
      beam_options: The options of Beam.
      **storage: `jobs`, `shuffle`, `skip_damaged`, `verify`, `float64`, `tensor_encoding` and
        `png_level` of `tfds_builders.convert`.

    Raises:
      FileExistsError: The dataset exists; it is not changed.
      SourceError: The source is damaged, or its format is unknown.
      ValueError: An argument is wrong, or the builder or config is unknown.
    """
    if to not in FILE_FORMATS:
        raise ValueError(f"to: got {to!r}, expected one of {', '.join(FILE_FORMATS)}")
    if beam_runner is not None and source is not None and "://" not in os.fspath(source):
        source = os.path.abspath(source)  # Workers may run in other folders.
    raw: Any = source
    pipeline: dict[str, Any] = {"beam_runner": beam_runner}
    pipeline["beam_options"] = None if beam_runner is None else list(beam_options)
    if dataset is not None:
        builder_class, config = find_builder(dataset)
        if quiet_process:
            from tfds_builders import quiet

            quiet.quiet_libraries()
        # The standard output holds only the result, not the logs of TensorFlow, TFDS and Beam.
        with contextlib.redirect_stdout(sys.stderr):
            import tensorflow_datasets as tfds

            from tfds_builders.builder import prepared

            builder = builder_class(
                path=raw,
                config=config,
                name=name,
                version=version,
                data_dir=directory,
                file_format=to,
                progress=progress,
                **storage,
                **(options or {}),
            )
            download_config = tfds.download.DownloadConfig(num_shards=num_shards, **pipeline)
            prepared_builder = prepared(builder, download_config)
        splits = prepared_builder.info.metadata["conversion"]["splits"]
        return Conversion(os.fspath(prepared_builder.data_path), to, splits)
    from rlds import sources
    from rlds.conversion import exporting
    from rlds_ecosystem.files import stores
    from tfds_files.summary import METADATA_FILE, read_json

    formats, format, options = sources.formats(), format or sources.format_of(raw), options or {}
    if format not in formats:
        raise ValueError(f"no format {format!r}; {suggest_names(format, formats)}")
    source_format = formats[format]
    if storage.get("float64") == "float32" and "float64" in source_format.options:
        options = {"float64": "float32", **options}  # Logs have the same option.
    selection = source_format.source(raw, **options)
    default_name, default_version = _default_name(selection, raw)
    selected_episodes = _select_episodes(raw, "all", where, labels, action_as, format, options)
    selection = selection if selected_episodes is raw else selected_episodes.source
    root = directory or os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")
    name, version = name or default_name, version or default_version
    path = stores.as_path(os.path.expanduser(root)) / name / version
    exporting.export(
        selection,
        "tfds",
        path,
        split="+".join(selection.splits),
        name=name,
        version=version,
        file_format=to,
        num_shards=num_shards,
        progress=progress,
        **{"shuffle": True, **storage},
        **pipeline,
    )
    splits = read_json(path / METADATA_FILE)["conversion"]["splits"]
    return Conversion(os.fspath(path), to, splits)


def builders() -> dict[str, type[SourceBuilder]]:
    """Returns the builders of `tfds_builders` by their names in TFDS."""
    from tfds_builders import formats, published
    from tfds_builders.builder import SourceBuilder

    public = [getattr(module, name) for module in (formats, published) for name in module.__all__]
    return {builder.name: builder for builder in public if issubclass(builder, SourceBuilder)}


def find_builder(dataset: str) -> tuple[type[SourceBuilder], str | None]:
    """Returns a builder, and the name of its config.

    Args:
      dataset: The name of the builder and the config, as in `tfds.load`.

    Raises:
      ValueError: The builder or config is unknown; the message lists similar names.
    """
    name, _, config = dataset.partition("/")
    available = builders()
    if name not in available:
        raise ValueError(f"no dataset {name!r}; {suggest_names(name, available)}")
    configs = list(available[name].builder_configs)
    if config and config not in configs:
        raise ValueError(_config_error(name, config, configs))
    return available[name], config or None


def _config_error(dataset: str, config: str, configs: Sequence[str]) -> str:
    if not configs:
        return f"{dataset} has no configs, got {config!r}. Use {dataset} alone."
    names = difflib.get_close_matches(config, configs, n=5, cutoff=0.4) or configs[:5]
    return f"{dataset} has no config {config!r}; {len(configs)} exist, such as: {', '.join(names)}"


def dataset_name(text: str) -> str:
    """Converts text to a valid TFDS name for a dataset, of at most 100 characters.

    >>> dataset_name("Pick & place, 2nd try"), dataset_name("7"), dataset_name("")
    ('pick_place_2nd_try', 'dataset_7', 'dataset')
    """
    name = re.sub("[^a-z0-9]+", "_", text.lower()).strip("_")
    name = name if name[:1].isalpha() else f"dataset_{name}"
    return name[:100].rstrip("_")


def _default_name(source: AnySource, path: str | os.PathLike[str]) -> tuple[str, str]:
    """Returns the default name and version of a converted dataset."""
    info = source.source_info
    if info.name:
        is_name = re.fullmatch("[a-z][a-z0-9_]*", info.name)
        return info.name if is_name else dataset_name(info.name), info.version
    minari = info.metadata.get("minari")
    if isinstance(minari, Mapping) and "dataset_id" in minari:  # The path may lack the name.
        return dataset_name(str(minari["dataset_id"])), "1.0.0"
    return _name_from_path(path), "1.0.0"


def _name_from_path(source: str | os.PathLike[str]) -> str:
    """Returns a name for a dataset, derived from the path of its source.

    >>> _name_from_path("logs/Run 7"), _name_from_path("hopper/medium-v0/"), _name_from_path("7.h5")
    ('run_7', 'medium_v0', 'dataset_7')
    """
    return dataset_name(os.path.basename(os.path.abspath(source)).partition(".")[0])
