"""What recordings can be exported to: a format is a line in a table, and a function."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rlds_ecosystem import install_command

if TYPE_CHECKING:
    from rlds.formats.logs.source import EnvLoggerSource
    from rlds.sources import Placement, SourceEpisode

__all__ = ["FORMATS", "Format"]

_DESCRIPTION = "Episodes that people played in the browser, recorded with `rlds create`."
_VERSION = "1.0.0"
# About how large a file of a dataset gets.
_BYTES_PER_SHARD = 1 << 28


class Write(Protocol):
    """Makes the data of a log, as a format has it."""

    def __call__(
        self,
        log: Path,
        folder: Path,
        name: str,
        options: Sequence[str],
        progress: Callable[[float], None],
    ) -> tuple[Path, Sequence[Placement]]:
        """Makes it; returns where it is, and what becomes of each field, if it says so.

        Args:
          log: The log.
          folder: The folder of the export.
          name: The name of the data.
          options: What `rlds convert -T` takes.
          progress: Called with how much is done, from 0 to 1.
        """


@dataclasses.dataclass(frozen=True)
class Format:
    """A format that recordings can be exported to.

    Attributes:
      name: Its name.
      title: Its name, for people.
      opening: How to open the data in Python, with `{path}` in it.
      extra: The extra that installs what it needs; "" if it needs nothing more.
      modules: What must be installed for it.
      write: Makes the data of a log. None for the log itself.
    """

    name: str
    title: str
    opening: str
    extra: str = ""
    modules: Sequence[str] = ()
    write: Write | None = None

    @property
    def requires(self) -> str:
        """The shell command that installs what it needs; "" if it needs nothing more."""
        return install_command(self.extra) if self.extra else ""

    @property
    def installed(self) -> bool:
        """Whether all is installed that it needs."""
        return all(importlib.util.find_spec(module) is not None for module in self.modules)


def _source(log: Path) -> EnvLoggerSource:
    from rlds.formats.logs.source import EnvLoggerSource

    source = EnvLoggerSource(log)
    source.description = _DESCRIPTION
    return source


def _write_tfds(
    log: Path,
    folder: Path,
    name: str,
    options: Sequence[str],
    progress: Callable[[float], None],
) -> tuple[Path, Sequence[Placement]]:
    from rlds.feeds import materialise
    from rlds.sources.episodes import Episodes

    class Reported(Episodes):
        def __iter__(self) -> Iterator[SourceEpisode]:
            for number, episode in enumerate(super().__iter__(), 1):
                # In place of its number: that of the recording is the same in all exports.
                name = episode.metadata.get("recorded_episode_id", episode.key)
                yield dataclasses.replace(episode, key=str(name))
                progress(number / len(self))

    if options:
        raise ValueError("TFDS has no options here")
    episodes = Reported(_source(log))
    num_bytes = sum(file.stat().st_size for file in log.rglob("*") if file.is_file())
    made = materialise(
        episodes,
        folder / name / _VERSION,
        name=name,
        images="png",
        max_episodes_per_shard=max(1, len(episodes) * _BYTES_PER_SHARD // num_bytes),
    )
    return Path(made), ()


def _writer(format: str, suffix: str = "") -> Write:
    """Makes what writes a format of `rlds.sources.exports`."""

    def write(
        log: Path,
        folder: Path,
        name: str,
        options: Sequence[str],
        progress: Callable[[float], None],
    ) -> tuple[Path, Sequence[Placement]]:
        from rlds import sources
        from rlds.sources.exporting import export_class
        from rlds.sources.options import options_of, parse_options

        del progress  # It is not told on the way.
        writer = export_class(format)
        given = parse_options(options_of(writer), options, format)
        path = folder / writer.part_name(f"{name}{suffix}")
        made = sources.export(_source(log), format, path, verify=False, allow_loss=True, **given)
        return path, made.placements

    return write


def _other(name: str, title: str, module: str = "", extra: str = "", suffix: str = "") -> Format:
    return Format(
        name,
        title,
        'rlds.sources.open("{path}")',
        extra=extra,
        modules=(module,) if module else (),
        write=_writer(name, suffix),
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
        _other("minari", "Minari dataset", "h5py", "hdf5", suffix="-v0"),
        _other("lerobot", "LeRobot dataset", "pyarrow", "lerobot"),
        _other("robomimic", "robomimic (HDF5)", "h5py", "hdf5"),
        _other("zarr", "Zarr buffer of Diffusion Policy", "numcodecs", "zarr"),
        _other("webdataset", "WebDataset"),
        _other("mcap", "MCAP files", "mcap", "ros"),
        _other("aloha", "ALOHA (HDF5)", "h5py", "hdf5"),
        _other("maniskill", "ManiSkill (HDF5)", "h5py", "hdf5"),
        _other("d4rl", "D4RL (HDF5)", "h5py", "hdf5"),
        _other("d4rl_pybullet", "D4RL of PyBullet (HDF5)", "h5py", "hdf5"),
        _other("d3rlpy", "d3rlpy (HDF5)", "h5py", "hdf5"),
        _other("ogbench", "OGBench (npz)"),
        _other("imitation", "imitation", "pyarrow", "parquet"),
    )
}

"""The formats that recordings can be exported to, by name."""
