"""`rlds convert`: data in any format becomes a dataset of TFDS, and that Minari or D4RL.

This is the only command that loads TensorFlow: TFDS writes with it.
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

from rlds_tools.results import Block, Result, printable

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

    from tfds_builders.builder import SourceBuilder

__all__ = [
    "FILE_FORMATS",
    "TARGETS",
    "Conversion",
    "builder_of",
    "builders",
    "convert",
    "convert_known",
    "dataset_name",
]

FILE_FORMATS = ("tfrecord", "array_record")
_EXPORTS = ("minari", "d4rl", "d4rl_pybullet")
TARGETS = (*FILE_FORMATS, *_EXPORTS)


@dataclasses.dataclass(frozen=True)
class Conversion(Result):
    """What a conversion has made.

    Attributes:
      path: The new dataset.
      to: Its format.
      splits: For each split its numbers, and the episodes that were left out because they are
        damaged, as `info.metadata["conversion"]` has them.
    """

    path: str
    to: str
    splits: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    def blocks(self) -> Iterator[Block]:
        """See `Result`."""
        yield self.path
        for split, numbers in self.splits.items():
            counted = {name: value for name, value in numbers.items() if isinstance(value, int)}
            words = [f"{value:,} {name.replace('_', ' ')}" for name, value in counted.items()]
            yield f"{split}: {', '.join(words)}"
            for episode in numbers.get("left_out", ()):
                yield printable(f"  left out: {episode['key']}: {episode['why']}")
        yield f"next: rlds inspect {self.path} · rlds validate {self.path}"


def convert(
    source: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    to: str = "tfrecord",
    name: str | None = None,
    version: str = "1.0.0",
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    quiet_process: bool = False,
    progress: bool | None = None,
    num_shards: int | None = None,
    beam_runner: str | None = None,
    beam_options: Sequence[str] = (),
    **storage: Any,
) -> Conversion:
    """Converts data in any format to a dataset; see `tfds_builders.convert`.

    Args:
      source: The data. For Minari and D4RL, a dataset that TFDS has written.
      directory: For a dataset of TFDS, the directory that keeps datasets: the new one is
        `<directory>/<name>/<version>`. Otherwise the Minari dataset or the D4RL file to make.
      to: One of `TARGETS`.
      name: The name of the dataset; by default that of the source, as far as TFDS allows it.
      version: Its version.
      format: The format of the source, if it cannot be recognized.
      options: Options of the source; `rlds.sources.formats()[format].options` has them.
      quiet_process: Whether the libraries that are loaded may be silenced, for the whole process.
      progress: Whether to show a progress bar; if None, on a terminal.
      num_shards: How many files each split has.
      beam_runner: Has Apache Beam do the work, with this runner.
      beam_options: Options for it.
      **storage: `shuffle`, `skip_damaged`, `verify`, `float64` and `tensor_encoding` of
        `tfds_builders.convert`.

    Raises:
      FileExistsError: There is such a dataset; it is left as it is.
      SourceError: The source is damaged, or of no known format.
      ValueError: An argument is wrong.
    """
    from rlds import sources

    if to not in TARGETS:
        raise ValueError(f"to: got {to!r}, expected one of {', '.join(TARGETS)}")
    format = format or sources.format_of(source)
    if to in _EXPORTS:
        return _export(source, directory, to, format, quiet_process)
    _check_format(format)
    with _libraries(quiet_process):
        import tfds_builders

        made = tfds_builders.convert(
            sources.formats()[format].load()(source, **(options or {})),  # type: ignore[call-arg]
            name=name or _name_for(source),
            version=version,
            data_dir=directory,
            file_format=to,
            progress=progress,
            download_config=_download_config(num_shards, beam_runner, beam_options),
            **storage,
        )
    return _conversion(made, to)


def convert_known(
    dataset: str,
    source: str | os.PathLike[str] | None = None,
    *,
    name: str | None = None,
    directory: str | os.PathLike[str] | None = None,
    manual_dir: str | os.PathLike[str] | None = None,
    file_format: str | None = None,
    options: Mapping[str, Any] | None = None,
    quiet_process: bool = False,
    progress: bool | None = None,
    num_shards: int | None = None,
    beam_runner: str | None = None,
    beam_options: Sequence[str] = (),
    **storage: Any,
) -> Conversion:
    """Converts a dataset that `tfds_builders` has a builder for, with what is known about it.

    Args:
      dataset: A builder, with a config if it has some: `rlds_d4rl/hopper-medium-v2`.
      source: The raw data; by default in `manual_dir`, or downloaded.
      name: The name of the dataset; by default that of the builder.
      directory: The directory that keeps datasets; by default that of TFDS.
      manual_dir: Where raw data is that no `source` names.
      file_format: The format of the files, one of `FILE_FORMATS`; "tfrecord" by default.
      options: Options of the source, in the place of those of the config.
      quiet_process: See `convert`.
      progress: See `convert`.
      num_shards: See `convert`.
      beam_runner: See `convert`.
      beam_options: See `convert`.
      **storage: See `convert`.

    Raises:
      FileExistsError: There is such a dataset; it is left as it is.
      SourceError: The raw data is damaged.
      ValueError: There is no such builder or config, or an argument is wrong.
    """
    builder_class, config = builder_of(dataset)
    with _libraries(quiet_process):
        from tfds_builders.builder import prepared

        builder = builder_class(
            path=source,
            config=config,
            name=name,
            data_dir=directory,
            file_format=file_format,
            progress=progress,
            **storage,
            **(options or {}),
        )
        config = _download_config(num_shards, beam_runner, beam_options, manual_dir)
        made = prepared(builder, config)
    return _conversion(made, file_format or "tfrecord")


def builders() -> dict[str, type[SourceBuilder]]:
    """Returns the builders of `tfds_builders` by the names that TFDS knows them by."""
    import tfds_builders
    from tfds_builders.builder import SourceBuilder

    public = [getattr(tfds_builders, name) for name in tfds_builders.__all__ if name[:4] == "Rlds"]
    return {found.name: found for found in public if issubclass(found, SourceBuilder)}


def builder_of(dataset: str) -> tuple[type[SourceBuilder], str | None]:
    """Returns a builder, and the name of the config.

    Args:
      dataset: Their names, as `tfds.load` takes them.

    Raises:
      ValueError: There is no such builder, or it has no such config; says which there are.
    """
    name, _, config = dataset.partition("/")
    known = builders()
    if name not in known:
        raise ValueError(f"no dataset {name!r}; there are: {', '.join(known)}")
    configs = list(known[name].builder_configs)
    if config and config not in configs:
        raise ValueError(_unknown_config(name, config, configs))
    return known[name], config or None


def _unknown_config(dataset: str, config: str, known: Sequence[str]) -> str:
    if not known:
        return f"{dataset} has no configs, got {config!r}"
    near = difflib.get_close_matches(config, known, n=5, cutoff=0.4) or known[:5]
    return f"{dataset} has no config {config!r}; it has {len(known)}, such as: {', '.join(near)}"


def _export(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    to: str,
    format: str,
    quiet_process: bool,
) -> Conversion:
    if format != "tfds":
        raise ValueError(
            f"{os.fspath(source)} is in the format {format!r}; only datasets of TFDS become {to}: "
            "convert it to one first"
        )
    with _libraries(quiet_process):
        import tfds_builders
        import tfds_files

        directory = tfds_files.find_folder(source)
        if to == "minari":
            made = os.fspath(tfds_builders.export_minari(directory, _as_path(target)))
        elif to == "d4rl":
            tfds_builders.export_d4rl(directory, made := os.fspath(target))
        else:
            tfds_builders.export_d4rl_pybullet(directory, made := os.fspath(target))
    return Conversion(made, to)


def _as_path(target: str | os.PathLike[str]) -> str:
    """A place on this machine: a plain name would be an identifier of Minari."""
    return os.path.abspath(target)


def _check_format(format: str) -> None:
    from rlds import sources

    if format not in sources.formats():
        raise ValueError(f"no format {format!r}; there are: {', '.join(sources.formats())}")


def dataset_name(words: str) -> str:
    """Returns a name for a dataset, made of words: what TFDS allows, at most 100 characters.

    >>> dataset_name("Pick & place, 2nd try"), dataset_name("7"), dataset_name("")
    ('pick_place_2nd_try', 'dataset_7', 'dataset')
    """
    name = re.sub("[^a-z0-9]+", "_", words.lower()).strip("_")
    name = name if name[:1].isalpha() else f"dataset_{name}"
    return name[:100].rstrip("_")


def _name_for(source: str | os.PathLike[str]) -> str:
    """A name for a dataset, from that of its source.

    >>> _name_for("logs/Run 7"), _name_for("mujoco/hopper/medium-v0/"), _name_for("7.hdf5")
    ('run_7', 'medium_v0', 'dataset_7')
    """
    return dataset_name(os.path.basename(os.path.abspath(source)).partition(".")[0])


def _download_config(
    num_shards: int | None,
    beam_runner: str | None,
    beam_options: Sequence[str],
    manual_dir: Any = None,
) -> tfds.download.DownloadConfig:
    import tensorflow_datasets as tfds

    return tfds.download.DownloadConfig(
        manual_dir=manual_dir,
        num_shards=num_shards,
        beam_runner=beam_runner,
        beam_options=None if beam_runner is None else list(beam_options),
    )


@contextlib.contextmanager
def _libraries(quiet_process: bool) -> Iterator[None]:
    """Has TensorFlow, TFDS and Beam say nothing on the standard output, and little elsewhere."""
    if quiet_process:
        from tfds_builders import quiet

        quiet.quiet_libraries()
    with contextlib.redirect_stdout(sys.stderr):
        yield


def _conversion(builder: tfds.core.DatasetBuilder, to: str) -> Conversion:
    splits = builder.info.metadata["conversion"]["splits"]
    return Conversion(os.fspath(builder.data_path), to, splits)
