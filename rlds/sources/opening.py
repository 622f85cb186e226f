"""The one door: finds out what a path is, and opens it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etils import epath

from rlds.raw_files.archives import SUFFIXES
from rlds.raw_files.untrusted import is_damage
from rlds.sources import reading
from rlds.sources.episodes import Episodes
from rlds.sources.options import Option, options_of
from rlds.sources.restored import restored
from rlds.sources.source import Source, SourceError, files_of
from rlds.sources.video_frames import as_chosen
from rlds_ecosystem import import_extra, stores
from rlds_ecosystem.names import what_there_is

__all__ = ["ENTRY_POINTS", "Format", "format_of", "formats", "only_split", "open"]

# The formats of files that are not recognized by what is in them, by the ends of their names.
_NEAREST = {
    ".hdf5": ("robomimic", "d4rl", "maniskill", "aloha"),
    ".h5": ("maniskill", "d3rlpy", "droid", "d4rl"),
    ".npz": ("npz", "ogbench", "calvin"),
    ".parquet": ("lerobot", "minari"),
    ".tar": ("webdataset",),
    ".pkl": ("rlds_creator", "sb3"),
    ".riegeli": ("envlogger",),
}
# How many names in an unknown file or folder are listed.
_SEEN = 8

# The group of entry points under which other distributions add formats.
ENTRY_POINTS = "rlds.sources"

# A format is a line here: its name, and the class that reads it.
_FORMATS = {
    "envlogger": "rlds.formats.logs.source:EnvLoggerSource",
    "tfds": "rlds.formats.tfds.source:FolderSource",
    "minari": "rlds.formats.minari.source:MinariSource",
    "lerobot": "rlds.formats.lerobot.source:LeRobotSource",
    "aloha": "rlds.formats.aloha.source:AlohaSource",
    "webdataset": "rlds.formats.webdataset.source:WebdatasetSource",
    "calvin": "rlds.formats.calvin.source:CalvinSource",
    "zarr": "rlds.formats.zarr_buffers.source:ZarrSource",
    "robomimic": "rlds.formats.robomimic.source:RobomimicSource",
    "maniskill": "rlds.formats.maniskill.source:ManiSkillSource",
    "robomind": "rlds.formats.robomind.source:RoboMindSource",
    "droid": "rlds.formats.droid.source:DroidSource",
    "agibot": "rlds.formats.agibot.source:AgiBotSource",
    "mcap": "rlds.formats.bags.source:McapSource",
    "rosbag": "rlds.formats.bags.source:RosbagSource",
    "npz": "rlds.formats.npz.source:NpzSource",
    "ogbench": "rlds.formats.ogbench.source:OGBenchSource",
    "sb3": "rlds.formats.sb3.source:Sb3Source",
    "d3rlpy": "rlds.formats.d3rlpy.source:D3rlpySource",
    "imitation": "rlds.formats.imitation.source:ImitationSource",
    "d4rl": "rlds.formats.d4rl.source:D4rlSource",
    "d4rl_pybullet": "rlds.formats.d4rl.pybullet:D4rlPybulletSource",
    "atari_dqn_replay": "rlds.formats.atari_dqn_replay.source:AtariDqnReplaySource",
    "rlds_creator": "rlds.formats.creator.source:RldsCreatorSource",
    "rlu_atari": "rlds.formats.rlu.atari:RluAtariSource",
    "rlu_atari_transitions": "rlds.formats.rlu.atari_transitions:RluAtariTransitionsSource",
    "rlu_bsuite": "rlds.formats.rlu.bsuite:RluBsuiteSource",
    "rlu_control_suite": "rlds.formats.rlu.control_suite:RluControlSuiteSource",
    "rlu_control_suite_windows": (
        "rlds.formats.rlu.control_suite_windows:RluControlSuiteWindowsSource"
    ),
    "rlu_dmlab": "rlds.formats.rlu.dmlab:RluDmlabSource",
    "rlu_locomotion": "rlds.formats.rlu.locomotion:RluLocomotionSource",
    "rlu_locomotion_windows": "rlds.formats.rlu.locomotion_windows:RluLocomotionWindowsSource",
    "rlu_rwrl": "rlds.formats.rlu.rwrl:RluRwrlSource",
}


@dataclasses.dataclass(frozen=True)
class Format:
    """A format that can be opened.

    Attributes:
      name: Its name, for `open(path, format=name)`.
      target: The class that reads it, as `module:Class`.
    """

    name: str
    target: str

    def load(self) -> type[Source]:
        """Returns the class that reads it."""
        module, _, name = self.target.partition(":")
        loaded: type[Source] = getattr(importlib.import_module(module), name)
        return loaded

    def source(self, path: str | os.PathLike[str], **options: Any) -> Source:
        """Returns the source for data; with what an export has kept beside it, or with pixels.

        Raises:
          Exception: What the class that reads the format raises.
        """
        return as_chosen(restored(reading.made(self.load(), path, **options)))

    @property
    def description(self) -> str:
        """What the format is, in a sentence."""
        return (self.load().__doc__ or "").partition("\n")[0]

    @property
    def options(self) -> Mapping[str, Option]:
        """What `open` takes beside the path, by name."""
        return options_of(self.load())

    def recognizes(self, path: str | os.PathLike[str]) -> bool:
        """Whether a path seems to be of this format; reads little of it.

        Raises:
          ImportError: What would be needed to look is not installed; says how to install it.
        """
        try:
            return self.load().recognizes(path)
        except OSError:
            return False
        except Exception as error:
            if not is_damage(error):
                raise
            return False


def formats() -> dict[str, Format]:
    """Returns the formats that can be opened, by name.

    Other distributions add theirs by an entry point of the group `rlds.sources`, whose name is that
    of the format and whose value the class that reads it, a `Source`.

    >>> formats()["minari"].description
    'The episodes of a Minari dataset in any of its formats: HDF5, Arrow, Parquet.'
    """
    found = {name: Format(name, target) for name, target in _FORMATS.items()}
    for name, target in _added().items():
        if name in found:
            raise _two_formats(name, found[name].target, target)
        found[name] = Format(name, target)
    return found


@functools.cache
def _added() -> dict[str, str]:
    from importlib import metadata  # Takes longer to load than all of this.

    added: dict[str, str] = {}
    for point in metadata.entry_points(group=ENTRY_POINTS):
        if added.setdefault(point.name, point.value) != point.value:
            raise _two_formats(point.name, added[point.name], point.value)
    return added


def _two_formats(name: str, one: str, other: str) -> ValueError:
    return ValueError(f"two formats are called {name!r}: {one} and {other}; uninstall one of them")


def open(
    path: str | os.PathLike[str],
    split: str | None = None,
    *,
    format: str | None = None,
    **options: Any,
) -> Episodes:
    """Opens episodes, whatever format they are in.

    Args:
      path: A file or a folder, here or in an object store: logs of EnvLogger, a dataset of TFDS, or
        data of any other of the `formats`. For Minari, the identifier of a dataset that you
        have downloaded will do.
      split: The split; needed if there are several. Parts are named as in TFDS: `train[:10%]`,
        `train[5:20]`, `train+test`, `all`.
      format: The name of the format, if it cannot be recognized, or to save the search.
      **options: Options of the format; `formats()[name].options` has them.

    Returns:
      The episodes of the split, or of the part.

    Raises:
      FileNotFoundError: There is nothing at the path.
      KeyError: There is no such split; lists the splits.
      SourceError: The format is unknown, or the data is damaged; says where.
      TypeError: The format has no such option.
      ValueError: There is no such format, or the data could be of several; or no such part.

    >>> import tempfile
    >>> import envlogger
    >>> from envlogger.testing.catch_env import Catch
    >>> directory = tempfile.mkdtemp()
    >>> with envlogger.EnvLogger(Catch(), data_directory=directory) as env:
    ...     timestep = env.reset()
    ...     while not timestep.last():
    ...         timestep = env.step(1)
    >>> episodes = open(directory)
    >>> len(episodes), episodes.columns(0, ["action"], start=2, stop=5)
    (1, {'action': array([1, 1, 1])})
    """
    known = formats()
    if format is None:
        format = format_of(path)
    elif format not in known:
        raise ValueError(f"there is no format {format!r}; {what_there_is(format, known)}")
    source_class = known[format].load()
    if unknown := options.keys() - options_of(source_class).keys():
        names = ", ".join(map(str, options_of(source_class).values())) or "none"
        raise TypeError(f"{format} has no option {min(unknown)!r}; its options are: {names}")
    source = known[format].source(path, **options)
    return Episodes(source, only_split(source, split), format=format)


def format_of(path: str | os.PathLike[str]) -> str:
    """Finds out which format data is in; reads little of it.

    Args:
      path: A file or a folder, here or in an object store.

    Returns:
      The name of the format.

    Raises:
      FileNotFoundError: There is nothing at the path.
      ImportError: The format is unknown, and what would look for others is not installed.
      SourceError: The format is unknown.
      ValueError: The data could be of several formats.
    """
    _check_is_one_path(path)
    if _is_plain_folder_of_tfds(path):
        return "tfds"
    known = formats()
    found, missing = _recognized(path, known)
    if len(found) > 1:
        found = [name for name in found if not known[name].load().is_general] or found
    if len(found) > 1:
        raise ValueError(
            f"{os.fspath(path)!r} could be {' or '.join(found)}: say format={found[0]!r}, or "
            "another"
        )
    if found:
        return found[0]
    _check_is_there(path)
    if missing:
        raise missing[0]
    if os.fspath(path).endswith(SUFFIXES):
        raise SourceError("an archive: unpack it, and open what is in it", file=path)
    raise SourceError(_why_unknown(stores.as_path(path), known), file=path)


def _recognized(
    path: str | os.PathLike[str], known: Mapping[str, Format]
) -> tuple[list[str], list[ImportError]]:
    """Returns the formats that a path seems to be of, and why others could not look."""
    found, missing = [], []
    for name, format in known.items():
        try:
            if format.recognizes(path):
                found.append(name)
        except ImportError as error:
            missing.append(error)
    return found, missing


def _is_plain_folder_of_tfds(path: str | os.PathLike[str]) -> bool:
    """Whether there is nothing but a dataset of TFDS: then no other format has to be loaded."""
    if not stores.is_local(path) or not os.path.isdir(path):
        return False
    names = set(os.listdir(path))
    described = {"dataset_info.json", "features.json"}
    others = names - described - {"metadata.json"}
    return names >= described and all(".tfrecord-" in name or name[0] == "." for name in others)


def _why_unknown(path: epath.Path, known: Iterable[str]) -> str:
    if path.is_dir() and not any(path.iterdir()):
        return "an empty folder"
    if (path / "features.json").exists():
        return (
            "a dataset of TFDS that is not complete: dataset_info.json, which is written last, is "
            "missing. If its writer was killed, write it again"
        )
    seen, near = _seen_in(path)
    near = [name for name in near if name in known]
    nearest = f" The nearest are: {', '.join(near)}." if near else ""
    return (
        f"of no known format{seen}.{nearest} To open it as one, or to learn what is wrong with it, "
        "pass format=... (--format on the command line); `rlds list --formats` has all"
    )


def _seen_in(path: epath.Path) -> tuple[str, Sequence[str]]:
    """What was found at a path of no known format, and the formats that have such files."""
    names = sorted(file.name for file in path.iterdir()) if path.is_dir() else [path.name]
    suffixes = {os.path.splitext(name)[1] for name in names}
    near = [name for suffix, formats in _NEAREST.items() if suffix in suffixes for name in formats]
    what = "a folder with"
    if not path.is_dir():
        what, names = "an HDF5 file with", []
        if suffixes <= {".hdf5", ".h5"} and stores.is_local(path):
            damage = (ImportError, OSError, RuntimeError, LookupError, ValueError)
            with contextlib.suppress(*damage), import_extra("h5py").File(path) as file:
                names = sorted(file)
    if not names:
        return "", near
    more = ", …" if len(names) > _SEEN else ""
    return f": {what} {', '.join(map(repr, names[:_SEEN]))}{more}", near


def _check_is_one_path(path: Any) -> None:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"got {type(path).__name__}, expected a path; say format=... for others")


def _check_is_there(path: str | os.PathLike[str]) -> None:
    if not stores.as_path(path).exists():
        name = os.fspath(path)
        is_identifier = re.fullmatch(r"[\w/-]+-v\d+", name)
        hint = f" If it is a Minari dataset: minari download {name}" if is_identifier else ""
        raise FileNotFoundError(f"{name!r} does not exist.{hint}")


def only_split(source: Source, split: str | None) -> str:
    """Returns the wanted split; without one, the only split there is.

    Raises:
      KeyError: There are several; says which.
    """
    if split is not None:
        return split
    splits = list(source.splits)
    if len(splits) != 1:
        raise KeyError(f"there are the splits {splits}: say which (of {files_of(source, 1)})")
    return splits[0]
