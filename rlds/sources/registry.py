"""The formats: a line for each, with the classes that read and write it, and how to know it."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import os
import posixpath
import re
from collections.abc import Collection, Mapping
from fnmatch import translate
from typing import Any

from rlds.raw_files.untrusted import is_damage
from rlds.sources import reading
from rlds.sources.encoded_frames import with_video
from rlds.sources.options import Option, options_of
from rlds.sources.restored import with_sidecar
from rlds.sources.source import Source
from rlds_ecosystem import import_extra
from rlds_ecosystem.files import stores

__all__ = ["ENTRY_POINTS", "Format", "formats", "names_at"]

# The group of entry points under which other distributions add formats.
ENTRY_POINTS = "rlds.sources"

# How many names are looked at to tell which formats a path cannot be of.
_MOST_NAMES = 2000


@dataclasses.dataclass(frozen=True)
class Format:
    """A format that can be opened.

    Attributes:
      name: Its name, for `open(path, format=name)`.
      target: The class that reads it, as `module:Class`.
      export: The class that writes it, in the same form; empty if there is none.
      signs: Patterns of names, such as `*.h5`. Data of the format has a file or a folder of such a
        name, at the path or below it. Without signs, it may have any names. An HDF5 file at the
        path itself has the names of its members instead: `*.h5/data`.
      counted: Patterns of places in the metadata of its data, such as `lerobot/info/total_*`:
        counts and other facts about files, which mean nothing for the values of rows.
      provenance: Patterns of those that tell where data comes from, such as its author.
      by_file: Places with an entry for each file, by its name.
    """

    name: str
    target: str
    export: str = ""
    signs: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    provenance: tuple[str, ...] = ()
    by_file: tuple[str, ...] = ()

    def load(self) -> type[Source]:
        """Returns the class that reads it."""
        loaded: type[Source] = _load(self.target)
        return loaded

    def load_export(self) -> Any:
        """Returns the class that writes it, an `Export` of `rlds.sources.writing`."""
        return _load(self.export)

    def source(self, path: str | os.PathLike[str], **options: Any) -> Source:
        """Returns the source for data; with what an export has kept beside it, or with pixels.

        Raises:
          Exception: What the class that reads the format raises.
        """
        return with_video(with_sidecar(reading.made(self.load(), path, **options)))

    @property
    def description(self) -> str:
        """What the format is, in a sentence."""
        return (self.load().__doc__ or "").partition("\n")[0]

    @property
    def options(self) -> Mapping[str, Option]:
        """What `open` takes beside the path, by name."""
        return options_of(self.load())

    def recognizes(
        self, path: str | os.PathLike[str], names: Collection[str] | None = None
    ) -> bool:
        """Whether a path seems to be of this format; reads little of it.

        Args:
          path: A file or a folder.
          names: What `names_at` returns for it; saves loading the class that reads the format.

        Raises:
          ImportError: What would be needed to look is not installed; says how to install it.
        """
        if names is not None and self.signs:
            is_sign = re.compile("|".join(map(translate, self.signs))).match
            if not any(map(is_sign, names)):
                return False
        try:
            return self.load().recognizes(path)
        except OSError:
            return False
        except Exception as error:
            if not is_damage(error):
                raise
            return False


def _own(name: str, folder: str, reader: str, writer: str = "", signs: str = "") -> Format:
    place = f"rlds.formats.{folder}."
    stated = {
        key: tuple(posixpath.join(f"/{name}", each)[1:] for each in text.split())
        for key, text in _STATED.get(name, {}).items()
    }
    return Format(
        name, place + reader, place + writer if writer else "", tuple(signs.split()), **stated
    )


# Which metadata of a format is about its files, or about where they come from; see `Format`. Places
# are below the name of the format, unless they begin with a slash.
_STATED: Mapping[str, Mapping[str, str]] = {
    "agibot": {"counted": "cameras"},
    "aloha": {"counted": "attribute_names", "provenance": "options/instruction"},
    "atari_dqn_replay": {"counted": "/checkpoints/*"},
    "calvin": {"counted": "*/scene_info* */statistics.yaml"},
    "d3rlpy": {"counted": "columns/* version"},
    "d4rl": {
        "counted": "file boundary rows_with_*",
        "provenance": "dataset url algorithm iteration reference_* /hdf5/*",
    },
    "d4rl_pybullet": {"counted": "file", "provenance": "time_limit"},
    "droid": {"counted": "cameras"},
    "imitation": {"counted": "info/features/* state/*", "provenance": "info/*"},
    "lerobot": {
        "counted": "info/codebase_version info/total_* info/splits/* info/*_size* info/data_path "
        "info/video_path info/features/*/dtype info/features/*/shape info/features/*/names* "
        "info/features/*info/video.* info/features/*info/has_audio tasks* schemas/* fields/* "
        "left_out files/*stats* subtasks* files/*subtasks.parquet*",
        "provenance": "files/README* files/LICENSE*",
    },
    "maniskill": {
        "counted": "file attribute_names json/env_info/max_episode_steps",
        "provenance": "json/commit_info* json/source_*",
    },
    "mcap": {"counted": "recordings config_is topics/*/encoding"},
    "minari": {
        "counted": "total_* data_format dataset_size dataset_id minari_version rlds/lineage/* "
        "rlds/conversion/* *env_spec/max_episode_steps",
        "provenance": "author* code_permalink algorithm_name description requirements* *_score",
    },
    "ogbench": {"counted": "arrays/*"},
    "robomimic": {
        "counted": "files/*/demos files/*/masks* files/*/others/* files/*/attributes/total "
        "files/*/attributes/num_demos",
        "provenance": "files/*/attributes/date files/*/attributes/time",
        "by_file": "files",
    },
    "robomind": {"provenance": "options/instructions*"},
    "rosbag": {"counted": "recordings config_is topics/*/encoding"},
    "sb3": {
        "counted": "buffer_size pos full n_envs optimize_memory_usage handle_timeout_termination"
    },
    "zarr": {"counted": "images/*"},
    "rlu_atari": {"counted": "/raw_files/*"},  # And all other data of RL Unplugged.
}


def _hdf5(*members: str) -> str:
    """Returns the signs of HDF5 files below a path, and of one at it that has such a member."""
    return " ".join(["*.h5 *.hdf5", *(f"*.h5/{name} *.hdf5/{name}" for name in members)])


_RLU = "*-of-[0-9]* *.tfrecord*"
_FORMATS = (
    _own(
        "envlogger", "logs", "source:EnvLoggerSource", "export:EnvLoggerExport", "metadata.riegeli"
    ),
    _own("tfds", "tfds", "source:FolderSource", "export:TfdsExport", "features.json"),
    _own(
        "minari", "minari", "source:MinariSource", "export:MinariExport", "metadata.json *-v[0-9]*"
    ),
    _own("lerobot", "lerobot", "source:LeRobotSource", "export:LeRobotExport", "info.json"),
    _own("aloha", "aloha", "source:AlohaSource", "export:AlohaExport", _hdf5("action")),
    _own("webdataset", "webdataset", "source:WebdatasetSource", "export:WebdatasetExport", "*.tar"),
    _own("calvin", "calvin", "source:CalvinSource", signs="*.npz"),
    _own(
        "zarr",
        "zarr_buffers",
        "source:ZarrSource",
        "export:ZarrExport",
        "*.zarr.zip .zgroup .zarray zarr.json",
    ),
    _own(
        "robomimic", "robomimic", "source:RobomimicSource", "export:RobomimicExport", _hdf5("data")
    ),
    _own(
        "maniskill",
        "maniskill",
        "source:ManiSkillSource",
        "export:ManiSkillExport",
        _hdf5("traj_*"),
    ),
    _own("robomind", "robomind", "source:RoboMindSource", signs=_hdf5("puppet")),
    _own("droid", "droid", "source:DroidSource", signs=_hdf5()),
    _own("agibot", "agibot", "source:AgiBotSource", signs=_hdf5()),
    _own("mcap", "bags", "source:McapSource", "export:McapExport", "*.mcap*"),
    _own("rosbag", "bags", "source:RosbagSource", signs="*.bag *.db3 *.mcap *.zstd metadata.yaml"),
    _own("npz", "npz", "source:NpzSource", signs="*.npz"),
    _own("layout", "layout", "source:LayoutSource", signs="rlds_layout.yaml"),
    _own("ogbench", "ogbench", "source:OGBenchSource", signs="*.npz"),
    _own("sb3", "sb3", "source:Sb3Source", signs="*.pkl"),
    _own(
        "d3rlpy",
        "d3rlpy",
        "source:D3rlpySource",
        "export:D3rlpyExport",
        _hdf5("actions_0*", "episode_terminals"),
    ),
    _own("imitation", "imitation", "source:ImitationSource", signs="state.json"),
    _own("d4rl", "d4rl", "source:D4rlSource", "export:D4rlExport", _hdf5("terminals")),
    _own("d4rl_pybullet", "d4rl", "pybullet:D4rlPybulletSource", signs=_hdf5("terminals")),
    _own("atari_dqn_replay", "atari_dqn_replay", "source:AtariDqnReplaySource", signs="*.gz"),
    _own("rlds_creator", "google_creator", "source:RldsCreatorSource", signs="*.pkl *.zip"),
    _own("rlu_atari", "rlu", "atari:RluAtariSource", signs=_RLU),
    _own("rlu_atari_transitions", "rlu", "atari_transitions:RluAtariTransitionsSource", signs=_RLU),
    _own("rlu_bsuite", "rlu", "bsuite:RluBsuiteSource", signs=_RLU),
    _own("rlu_control_suite", "rlu", "control_suite:RluControlSuiteSource", signs=_RLU),
    _own(
        "rlu_control_suite_windows",
        "rlu",
        "control_suite_windows:RluControlSuiteWindowsSource",
        signs=_RLU,
    ),
    _own("rlu_dmlab", "rlu", "dmlab:RluDmlabSource", signs=_RLU),
    _own("rlu_locomotion", "rlu", "locomotion:RluLocomotionSource", signs=_RLU),
    _own(
        "rlu_locomotion_windows", "rlu", "locomotion_windows:RluLocomotionWindowsSource", signs=_RLU
    ),
    _own("rlu_rwrl", "rlu", "rwrl:RluRwrlSource", signs=_RLU),
)


def formats() -> dict[str, Format]:
    """Returns the formats that can be opened, by name.

    Other distributions add theirs by an entry point of the group `rlds.sources`, whose name is that
    of the format and whose value the class that reads it, a `Source`.

    >>> formats()["minari"].description
    'The episodes of a Minari dataset in any of its formats: HDF5, Arrow, Parquet.'
    """
    found = {format.name: format for format in _FORMATS}
    for name, target in _added().items():
        if name in found:
            raise _two_formats(name, found[name].target, target)
        found[name] = Format(name, target)
    return found


def names_at(path: str | os.PathLike[str]) -> set[str] | None:
    """Returns the names of a file, or of all that is in a folder; None if that takes long.

    Of an HDF5 file: `NAME/MEMBER` for each of its members, if it can be read and has not too many.
    """
    if not stores.is_local(path):
        return None
    place = os.fspath(stores.as_path(path))
    names = {os.path.basename(os.path.abspath(place))}
    if place.endswith((".h5", ".hdf5")) and os.path.isfile(place):
        return _members(place) or names
    for _, folders, files in os.walk(place):
        names.update(folders, files)
        if len(names) > _MOST_NAMES:
            return None
    return names


def _members(file: str) -> set[str]:
    try:
        with import_extra("h5py").File(file) as opened:
            if len(opened) <= _MOST_NAMES:
                return {f"{os.path.basename(file)}/{name}" for name in opened}
    except (ImportError, OSError, RuntimeError, ValueError):
        pass  # The formats say what is wrong.
    return set()


def _load(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


@functools.cache
def _added() -> dict[str, str]:
    from importlib import metadata  # Takes longer to load than all of this.

    added: dict[str, str] = {}
    for point in metadata.entry_points(group=ENTRY_POINTS):
        if added.setdefault(point.name, point.value) != point.value:
            raise _two_formats(point.name, added[point.name], point.value)
    return added


def _two_formats(name: str, one: str, other: str) -> ValueError:
    return ValueError(
        f"two formats have the name {name!r}: {one} and {other}; uninstall one of them"
    )
