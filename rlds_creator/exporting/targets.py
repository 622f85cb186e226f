"""What recordings can be exported to: a format is a line in a table, and a function."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

__all__ = ["FORMATS", "Format", "formats"]

_DESCRIPTION = "Episodes that people played in the browser, recorded with `rlds create`."


@dataclasses.dataclass(frozen=True)
class Format:
    """A format that recordings can be exported to.

    Attributes:
      name: Its name.
      title: Its name, for people.
      requires: What to install for it: the arguments of `pip install`; "" if nothing is missing.
      modules: What must be installed for it.
      write: Makes the data of a log, given the log, the folder of the export, and the name of the
        data; returns the data. None for the log itself.
      opening: How to open the data in Python, with `{name}` and `{path}` in it.
    """

    name: str
    title: str
    opening: str
    requires: str = ""
    modules: Sequence[str] = ()
    write: Callable[[Path, Path, str], Path] | None = None

    @property
    def installed(self) -> bool:
        """Whether all is installed that it needs."""
        return all(importlib.util.find_spec(module) is not None for module in self.modules)


def _write_tfds(log: Path, folder: Path, name: str) -> Path:
    # TFDS leaves other things beside the dataset.
    dataset = _dataset(log, name)
    (folder / name).mkdir()
    return dataset.rename(folder / name / dataset.name)


def _write_minari(log: Path, folder: Path, name: str) -> Path:
    from tfds_builders import export_minari

    return export_minari(_dataset(log, name), folder / f"{name}-v0")


def _dataset(log: Path, name: str) -> Path:
    from tfds_builders import build_from_logs

    builder = build_from_logs(
        log, name=name, data_dir=log.parent / "tfds", description=_DESCRIPTION
    )
    return Path(builder.data_path)


FORMATS: Mapping[str, Format] = {
    format.name: format
    for format in (
        Format("log", "Log of EnvLogger", 'envlogger.Reader("{path}")'),
        Format(
            "tfds",
            "Dataset of TFDS",
            'tfds.builder_from_directory("{path}").as_dataset()',
            requires="tensorflow-datasets",
            modules=("tensorflow", "tensorflow_datasets"),
            write=_write_tfds,
        ),
        Format(
            "minari",
            "Dataset of Minari",
            'rlds.sources.open("{path}")',
            requires="rlds-ecosystem[hdf5]",
            modules=("tensorflow", "tensorflow_datasets", "h5py"),
            write=_write_minari,
        ),
    )
}


def formats() -> dict[str, Format]:
    """Returns the formats that recordings can be exported to, by name.

    >>> list(formats()), formats()["log"].installed
    (['log', 'tfds', 'minari'], True)
    """
    return dict(FORMATS)
