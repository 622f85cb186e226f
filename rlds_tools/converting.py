"""`rlds convert`: data in any format becomes a dataset of TFDS, or data in the format of others.

All are exports, which load no TensorFlow; only the builder of a published dataset does.
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
    "builder_of",
    "builders",
    "convert",
    "dataset_name",
    "export",
    "targets",
]

FILE_FORMATS = ("tfrecord", "array_record")


@dataclasses.dataclass(frozen=True)
class Conversion(Result):
    """The result of a conversion to a dataset of TFDS: path, splits, and skipped episodes.

    Attributes:
      path: The new dataset.
      to: Its format.
      splits: For each split its numbers, and the episodes that were left out because they are
        damaged, as `info.metadata["conversion"]` has them.
    """

    path: str
    to: str
    splits: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    @override
    def blocks(self) -> Iterator[Block]:
        yield self.path
        for split, numbers in self.splits.items():
            counted = {name: value for name, value in numbers.items() if isinstance(value, int)}
            words = [f"{value:,} {name.replace('_', ' ')}" for name, value in counted.items()]
            yield f"{split}: {', '.join(words)}"
            for episode in numbers.get("left_out", ()):
                yield printable(f"  left out: {episode['key']}: {episode['why']}")
        yield next_commands(["inspect", self.path], ["validate", self.path])


@dataclasses.dataclass(frozen=True)
class ExportResult(Result):
    """The result of an export, or of its dry run: placement of the fields, skipped episodes.

    Attributes:
      path: The file or the folder.
      to: Its format.
      is_written: Whether it was written; False for a dry run.
      episodes: The number of its episodes.
      steps: The number of their steps.
      fields: The placement of each field: `field`, `place`, `how` and `why`, see
        `rlds.sources.Placement`.
      left_out: The problems of the damaged episodes, which were skipped.
      is_share: Whether it is a share of the parts that the whole is made of.
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
        counted = f"{count(self.episodes, 'episode')}, {count(self.steps, 'step')}"
        yield counted if self.is_written else f"fields in the format {self.to}"
        shown = [it for it in self.fields if not self.is_written or it.how != "exact" or it.why]
        if self.is_written and not shown:
            yield "the format holds all fields"
        if shown:
            rows = [[field.field, field.place, field.how, field.why] for field in shown]
            yield Table(["field", "place", "how", "why"], rows)
        if any(field.how == "sidecar" for field in shown):
            yield "sidecar: stored in a file beside the data that only rlds reads"
        if any(field.how == "sidecar" and field.field.startswith("video/") for field in shown):
            yield "cameras in the sidecar: pass -O video=frames to store them as images in the data"
        for error in self.left_out:
            yield printable(f"left out: {error}")
        if self.is_written:
            yield next_commands(["inspect", self.path], ["validate", self.path])


def targets() -> tuple[str, ...]:
    """Returns what `rlds convert` can make: formats of the files of TFDS, and all other exports."""
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
    """Writes data of any format in the format of others; see `rlds.sources.export`.

    Args:
      source: The data.
      target: The file or the folder to make.
      to: The format, one of `rlds.sources.exports()`.
      split: The split, if there are several, or a part such as `train[:10%]`.
      where: A condition on episodes, in SQL; see `rlds.sources.open`.
      labels: The layers of labels that become fields, see `rlds.labels.labelled`; all if empty.
      action_as: The kind that the actions get, "delta" or "absolute"; see `rlds.editing.ActionAs`.
      format: The format of the source, if it cannot be recognized.
      options: Options of the source.
      target_options: Options of the new format.
      allow_loss: Whether fields may change, or be lost.
      plan: Whether to say only what would become of each field.
      skip_damaged: Whether to leave out episodes that cannot be read.
      verify: Whether to read back what was written, and to compare it.
      progress: Whether to show a progress bar; if None, on a terminal.
      part: The share of the work to do, and the number of shares, see there.
      **sharing: `jobs`, `at_once`, `draft`, `beam_runner` and `beam_options`, see there.

    Raises:
      FileExistsError: There is something at the target; it is left as it is.
      SourceError: The source is damaged, or of no known format.
      ValueError: The format cannot hold the data as it is; says which fields.
    """
    from rlds.conversion import exporting

    opened = _chosen(source, split, where, labels, action_as, format, options or {})
    if opened is not source:
        split = None
    chosen: dict[str, Any] = {
        "split": split,
        "source_format": format,
        "source_options": options,
        **(target_options or {}),
    }
    if plan:
        writer = exporting.prepare(opened, to, **chosen)
        writer.check(target)
        return ExportResult(os.fspath(target), to, False, 0, 0, tuple(writer.placements()))
    exported = exporting.export(
        opened,
        to,
        target,
        allow_loss=allow_loss,
        skip_damaged=skip_damaged,
        verify=verify,
        progress=progress,
        part=part,
        **sharing,
        **chosen,
    )
    steps, is_share = exported.num_steps or 0, part is not None
    counted = (exported.num_episodes, steps, exported.placements, exported.left_out)
    return ExportResult(exported.path, to, not is_share, *counted, is_share)


def _chosen(
    source: str | os.PathLike[str],
    split: str | None,
    where: str | None,
    labels: Sequence[str] | None,
    action_as: str | None,
    format: str | None,
    options: Mapping[str, Any],
) -> Any:
    """Some of the episodes of a source, or all with other fields; the source if it is all of it."""
    if where is None and labels is None and action_as is None:
        return source
    from rlds.editing.action_kinds import ActionsView
    from rlds.labels import labelled
    from rlds.sources import open

    opened = open(source, split, format=format, where=where, **options)
    opened = opened if labels is None else labelled(opened, labels or None)
    return opened if action_as is None else opened.through(ActionsView, action_as)


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
    """Converts data in any format to a dataset of TFDS; see `tfds_builders.convert`.

    Args:
      source: The data. With a `dataset`, it may be None for what was published.
      directory: The directory that keeps datasets: the new one is `<directory>/<name>/<version>`.
        That of TFDS if None.
      to: One of `FILE_FORMATS`.
      dataset: A builder of `tfds_builders` that knows the data, with a config if it has some, such
        as `rlds_d4rl/hopper-medium-v2`.
      name: The name of the dataset; by default that of the builder, or of the source, as far as
        TFDS allows it.
      version: Its version; by default that of the source if it is a dataset of TFDS, or "1.0.0".
      where: A condition on episodes, in SQL; see `rlds.sources.open`.
      labels: The layers of labels that become fields, see `rlds.labels.labelled`; all if empty.
      action_as: The kind that the actions get, "delta" or "absolute"; see `rlds.editing.ActionAs`.
      format: The format of the source, if it cannot be recognized.
      options: Options of the source; `rlds.sources.formats()[format].options` has them.
      quiet_process: Whether the libraries that are loaded may be silenced, for the whole process.
      progress: Whether to show a progress bar; if None, on a terminal.
      num_shards: The number of files of each split.
      beam_runner: Has Apache Beam do the work, with this runner.
      beam_options: Options for it.
      **storage: `jobs`, `shuffle`, `skip_damaged`, `verify`, `float64`, `tensor_encoding` and
        `png_level` of `tfds_builders.convert`.

    Raises:
      FileExistsError: There is such a dataset; it is left as it is.
      SourceError: The source is damaged, or of no known format.
      ValueError: An argument is wrong, or there is no such builder or config.
    """
    if to not in FILE_FORMATS:
        raise ValueError(f"to: got {to!r}, expected one of {', '.join(FILE_FORMATS)}")
    if beam_runner is not None and source is not None and "://" not in os.fspath(source):
        source = os.path.abspath(source)  # Workers may run in other folders.
    raw: Any = source
    pipeline: dict[str, Any] = {"beam_runner": beam_runner}
    pipeline["beam_options"] = None if beam_runner is None else list(beam_options)
    if dataset is not None:
        builder_class, config = builder_of(dataset)
        if quiet_process:
            from tfds_builders import quiet

            quiet.quiet_libraries()
        # TensorFlow, TFDS and Beam say nothing on the standard output.
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

    formats, format, given = sources.formats(), format or sources.format_of(raw), options or {}
    if format not in formats:
        raise ValueError(f"no format {format!r}; {suggest_names(format, formats)}")
    source_format = formats[format]
    if storage.get("float64") == "float32" and "float64" in source_format.options:
        given = {"float64": "float32", **given}  # Some logs cannot be read without it.
    opened = source_format.source(raw, **given)
    known_name, known_version = _known_as(opened, raw)
    chosen = _chosen(raw, "all", where, labels, action_as, format, given)
    opened = opened if chosen is raw else chosen.source
    root = directory or os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")
    name, version = name or known_name, version or known_version
    path = stores.as_path(os.path.expanduser(root)) / name / version
    exporting.export(
        opened,
        "tfds",
        path,
        split="+".join(opened.splits),
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
    """Returns the builders of `tfds_builders` by the names that TFDS knows them by."""
    from tfds_builders import formats, published
    from tfds_builders.builder import SourceBuilder

    public = [getattr(module, name) for module in (formats, published) for name in module.__all__]
    return {builder.name: builder for builder in public if issubclass(builder, SourceBuilder)}


def builder_of(dataset: str) -> tuple[type[SourceBuilder], str | None]:
    """Returns a builder, and the name of the config.

    Args:
      dataset: The name of the builder and the config, as in `tfds.load`.

    Raises:
      ValueError: There is no such builder or config; the message lists similar ones.
    """
    name, _, config = dataset.partition("/")
    available = builders()
    if name not in available:
        raise ValueError(f"no dataset {name!r}; {suggest_names(name, available)}")
    configs = list(available[name].builder_configs)
    if config and config not in configs:
        raise ValueError(_unknown_config(name, config, configs))
    return available[name], config or None


def _unknown_config(dataset: str, config: str, configs: Sequence[str]) -> str:
    if not configs:
        return f"{dataset} has no configs, got {config!r}. Use {dataset} alone."
    near = difflib.get_close_matches(config, configs, n=5, cutoff=0.4) or configs[:5]
    return f"{dataset} has no config {config!r}; {len(configs)} exist, such as: {', '.join(near)}"


def dataset_name(words: str) -> str:
    """Returns a valid TFDS name for a dataset, of at most 100 characters, from words.

    >>> dataset_name("Pick & place, 2nd try"), dataset_name("7"), dataset_name("")
    ('pick_place_2nd_try', 'dataset_7', 'dataset')
    """
    name = re.sub("[^a-z0-9]+", "_", words.lower()).strip("_")
    name = name if name[:1].isalpha() else f"dataset_{name}"
    return name[:100].rstrip("_")


def _known_as(source: AnySource, path: str | os.PathLike[str]) -> tuple[str, str]:
    """The default name and version of a converted dataset."""
    about = source.about
    if about.name:
        is_name = re.fullmatch("[a-z][a-z0-9_]*", about.name)
        return about.name if is_name else dataset_name(about.name), about.version
    minari = about.metadata.get("minari")
    if isinstance(minari, Mapping) and "dataset_id" in minari:  # The path may end with "human-v2".
        return dataset_name(str(minari["dataset_id"])), "1.0.0"
    return _name_for(path), "1.0.0"


def _name_for(source: str | os.PathLike[str]) -> str:
    """A name for a dataset, from that of its source.

    >>> _name_for("logs/Run 7"), _name_for("mujoco/hopper/medium-v0/"), _name_for("7.hdf5")
    ('run_7', 'medium_v0', 'dataset_7')
    """
    return dataset_name(os.path.basename(os.path.abspath(source)).partition(".")[0])
