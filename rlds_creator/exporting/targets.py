"""Export formats of recordings: a format is a line in a table, and a function."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rlds_ecosystem import install_command

if TYPE_CHECKING:
    from rlds.formats.logs.source import EnvLoggerSource
    from rlds.sources import Placement, SourceEpisode

__all__ = ["FORMATS", "Format", "WriteRequest"]

_DESCRIPTION = "Episodes that people played in the browser, recorded with `rlds create`."
_VERSION = "1.0.0"
# About how large a file of a dataset gets.
_BYTES_PER_SHARD = 1 << 28


@dataclasses.dataclass(frozen=True)
class WriteRequest:
    """A log that becomes data in another format.

    Attributes:
      log: The log.
      folder: The folder of the export.
      name: The name of the data.
      options: Options of the format, as `rlds convert -T` takes them.
      progress: Called with how much is done, from 0 to 1.
    """

    log: Path
    folder: Path
    name: str
    options: Sequence[str]
    progress: Callable[[float], None]

    def source(self) -> EnvLoggerSource:
        """Opens the log."""
        from rlds.formats.logs.source import EnvLoggerSource

        source = EnvLoggerSource(self.log)
        source.about = source.about.replace(description=_DESCRIPTION)
        return source


# Returns where the data is, and what becomes of each field, if the format reports it.
Write: TypeAlias = "Callable[[WriteRequest], tuple[Path, Sequence[Placement]]]"


@dataclasses.dataclass(frozen=True)
class Format:
    """A format that recordings can be exported to.

    Attributes:
      name: Its name.
      title: Its name, for people.
      opening: Python code that opens the data, with `{path}` in it.
      extra: The extra that installs its dependencies; "" if it needs none.
      modules: Modules that must be installed.
      write: Writes the data of a log. None for the log itself.
    """

    name: str
    title: str
    opening: str
    extra: str = ""
    modules: Sequence[str] = ()
    write: Write | None = None

    @property
    def requires(self) -> str:
        """The shell command that installs its dependencies; "" if it needs none."""
        return install_command(self.extra) if self.extra else ""

    @property
    def installed(self) -> bool:
        """Whether its dependencies are installed."""
        return all(importlib.util.find_spec(module) is not None for module in self.modules)


def _write_tfds(wanted: WriteRequest) -> tuple[Path, Sequence[Placement]]:
    from rlds.feeds import materialise
    from rlds.sources.episodes import Episodes

    class Reported(Episodes):
        def __iter__(self) -> Iterator[SourceEpisode]:
            for number, episode in enumerate(super().__iter__(), 1):
                # In place of its number: that of the recording is the same in all exports.
                name = episode.metadata.get("recorded_episode_id", episode.key)
                yield dataclasses.replace(episode, key=str(name))
                wanted.progress(number / len(self))

    if wanted.options:
        raise ValueError("TFDS has no options here")
    episodes = Reported(wanted.source())
    num_bytes = sum(file.stat().st_size for file in wanted.log.rglob("*") if file.is_file())
    made = materialise(
        episodes,
        wanted.folder / wanted.name / _VERSION,
        name=wanted.name,
        images="png",
        max_episodes_per_shard=max(1, len(episodes) * _BYTES_PER_SHARD // num_bytes),
    )
    return Path(made), ()


def _write_other(
    format: str, suffix: str, defaults: Mapping[str, Any], wanted: WriteRequest
) -> tuple[Path, Sequence[Placement]]:
    """Writes a format of `rlds.sources.exports`, which reports no progress."""
    from rlds import sources
    from rlds.sources.exporting import export_class
    from rlds.sources.options import options_of, parse_options

    writer = export_class(format)
    given = {**defaults, **parse_options(options_of(writer), wanted.options, format)}
    path = wanted.folder / writer.part_name(f"{wanted.name}{suffix}")
    made = sources.export(wanted.source(), format, path, verify=False, allow_loss=True, **given)
    return path, made.placements


def _other(
    name: str, title: str, module: str = "", extra: str = "", suffix: str = "", **defaults: Any
) -> Format:
    return Format(
        name,
        title,
        'rlds.sources.open("{path}")',
        extra=extra,
        modules=(module,) if module else (),
        write=functools.partial(_write_other, name, suffix, defaults),
    )


FORMATS: Mapping[str, Format] = {
    format.name: format
    for format in (
        Format("log", "EnvLogger log", 'envlogger.Reader("{path}")'),
        Format(
            "tfds",
            "TFDS dataset",
            'tfds.builder_from_directory("{path}").as_dataset()',
            write=_write_tfds,
        ),
        _other("minari", "Minari dataset", "h5py", "hdf5", suffix="-v0", compression="gzip"),
        _other("lerobot", "LeRobot dataset", "pyarrow", "lerobot"),
        _other("robomimic", "robomimic (HDF5)", "h5py", "hdf5", compression="gzip"),
        _other("zarr", "Zarr buffer of Diffusion Policy", "numcodecs", "zarr"),
        _other("webdataset", "WebDataset"),
        _other("mcap", "MCAP files", "mcap", "ros"),
        _other("aloha", "ALOHA (HDF5)", "h5py", "hdf5"),
        _other("maniskill", "ManiSkill (HDF5)", "h5py", "hdf5"),
        _other("d4rl", "D4RL (HDF5)", "h5py", "hdf5"),
        _other("d3rlpy", "d3rlpy (HDF5)", "h5py", "hdf5"),
    )
}

"""The formats that recordings can be exported to, by name."""
