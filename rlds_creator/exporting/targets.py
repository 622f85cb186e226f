"""What recordings can be exported to: a format is a line in a table, and a function."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlds.formats.logs.source import EnvLoggerSource
    from rlds.sources import SourceEpisode

__all__ = ["FORMATS", "Format"]

_DESCRIPTION = "Episodes that people played in the browser, recorded with `rlds create`."
_VERSION = "1.0.0"
# About how large a file of a dataset gets.
_BYTES_PER_SHARD = 1 << 28


@dataclasses.dataclass(frozen=True)
class Format:
    """A format that recordings can be exported to.

    Attributes:
      name: Its name.
      title: Its name, for people.
      opening: How to open the data in Python, with `{path}` in it.
      requires: What to install for it: the arguments of `pip install`; "" if nothing is missing.
      modules: What must be installed for it.
      write: Makes the data of a log, given the log, the folder of the export, the name of the data,
        and what to call with how much is done; returns the data. None for the log itself.
    """

    name: str
    title: str
    opening: str
    requires: str = ""
    modules: Sequence[str] = ()
    write: Callable[[Path, Path, str, Callable[[float], None]], Path] | None = None

    @property
    def installed(self) -> bool:
        """Whether all is installed that it needs."""
        return all(importlib.util.find_spec(module) is not None for module in self.modules)


def _source(log: Path) -> EnvLoggerSource:
    from rlds.formats.logs.source import EnvLoggerSource

    source = EnvLoggerSource(log)
    source.description = _DESCRIPTION
    return source


def _write_tfds(log: Path, folder: Path, name: str, progress: Callable[[float], None]) -> Path:
    from rlds.feeds import materialise
    from rlds.sources.episodes import Episodes

    class Reported(Episodes):
        def __iter__(self) -> Iterator[SourceEpisode]:
            for number, episode in enumerate(super().__iter__(), 1):
                # In place of its number: that of the recording is the same in all exports.
                name = episode.metadata.get("recorded_episode_id", episode.key)
                yield dataclasses.replace(episode, key=str(name))
                progress(number / len(self))

    episodes = Reported(_source(log))
    num_bytes = sum(file.stat().st_size for file in log.rglob("*") if file.is_file())
    made = materialise(
        episodes,
        folder / name / _VERSION,
        name=name,
        images="png",
        max_episodes_per_shard=max(1, len(episodes) * _BYTES_PER_SHARD // num_bytes),
    )
    return Path(made)


def _write_minari(log: Path, folder: Path, name: str, progress: Callable[[float], None]) -> Path:
    from rlds import sources

    del progress  # It is not told on the way.
    sources.export(_source(log), "minari", folder / f"{name}-v0", verify=False, allow_loss=True)
    return folder / f"{name}-v0"


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
        Format(
            "minari",
            "Minari dataset",
            'rlds.sources.open("{path}")',
            requires="rlds-ecosystem[hdf5]",
            modules=("h5py",),
            write=_write_minari,
        ),
    )
}

"""The formats that recordings can be exported to, by name."""
