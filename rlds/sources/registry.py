"""The registry of formats: classes that read and write them, and signs for detection."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import os
import posixpath
from collections.abc import Mapping
from typing import Any

from rlds.raw_files.untrusted import is_damage
from rlds.sources.options import Option, options_of
from rlds.sources.signs import FileSigns, Signs
from rlds.sources.source import AnySource
from rlds_ecosystem.files import stores

__all__ = ["ENTRY_POINTS", "Format", "formats"]

# The group of entry points under which other distributions add formats.
ENTRY_POINTS = "rlds.sources"


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of datasets.

    Attributes:
      name: The name for `open(path, format=name)`.
      target: The class that reads the format, as `module:Class`.
      export: The class that writes the format, as `module:Class`; empty without a writer.
      patterns: Patterns of names, such as `*.h5`. Data of the format has a file or a folder that
        matches a pattern, at the path or below it. Empty for any names.
      files: The signature of the files. Together with `patterns`, it identifies the format.
      recognizer: The function that recognizes a path, as `module:function`. Without `recognizer`
        and `files`, the `recognizes` of the class is called.
      marker: A file that marks the folder of a dataset, for the search for datasets.
      is_fallback: True if data of other formats may look similar: the other formats have priority.
      counted: Patterns of paths in the metadata, such as `lerobot/info/total_*`: counts and other
        facts about files, which do not describe the values of rows.
      provenance: Patterns of paths in the metadata about the origin of data, such as its author.
      by_file: Paths in the metadata with an entry for each file, by its name.
    """

    name: str
    target: str
    export: str = ""
    patterns: tuple[str, ...] = ()
    files: FileSigns | None = None
    recognizer: str = ""
    marker: str = ""
    is_fallback: bool = False
    counted: tuple[str, ...] = ()
    provenance: tuple[str, ...] = ()
    by_file: tuple[str, ...] = ()

    def load(self) -> type[AnySource]:
        """Returns the source class of the format."""
        loaded: type[AnySource] = _load(self.target)
        return loaded

    def load_export(self) -> Any:
        """Returns the export class of the format, an `Export` of `rlds.sources.writing`."""
        return _load(self.export)

    def source(self, path: str | os.PathLike[str], **options: Any) -> AnySource:
        """Opens data as a source; restores sidecars, and decodes video if requested.

        Raises:
          Exception: An error of the class that reads the format.
        """
        from rlds.sources import reading

        source = reading.open_source(self.load(), path, **options)
        if source.capabilities.sidecar is not None:
            from rlds.sources.restored_source import with_sidecar

            source = with_sidecar(source)
        if source.capabilities.video == "packets":
            return source
        from rlds.sources.encoded_frames import with_video

        return with_video(source)

    @property
    def first_read(self) -> tuple[str, ...]:
        """Patterns of file names for detection; the most specific comes last."""
        return (*self.patterns, *filter(None, [posixpath.basename(self.marker)]))

    @property
    def description(self) -> str:
        """The description of the format, in a sentence."""
        return (self.load().__doc__ or "").partition("\n")[0]

    @property
    def options(self) -> Mapping[str, Option]:
        """The options of `open` for this format, by name."""
        return options_of(self.load())

    def recognizes(self, path: str | os.PathLike[str], signs: Signs | None = None) -> bool:
        """Whether a path seems to be of this format; reads little of it.

        Args:
          path: A file or a folder.
          signs: The signs of the path, shared by the tests of several formats.

        Raises:
          ImportError: A required library is not installed; the message tells how to install it.
          Exception: The class of another distribution has a bug.
        """
        signs = signs or Signs(path)
        if self.patterns and not signs.has_name(self.patterns):
            return False
        try:
            if self.files:
                return signs.has_file(self.files)
            answer = self._load_recognizer()(stores.as_path(path) if self.recognizer else path)
        except OSError:
            return False
        except Exception as error:
            is_own = self.recognizer or self.files
            if is_damage(error) if is_own else isinstance(error, ValueError):
                return False
            if not is_own and not isinstance(error, ImportError):
                error.add_note(
                    f"This is a bug in `recognizes` of {self.target}, the format {self.name!r}: it "
                    "must return True or False. To skip the detection, pass format=..."
                )
            raise
        return answer == self.name if isinstance(answer, str) else bool(answer)

    def _load_recognizer(self) -> Any:
        if self.recognizer:
            return _load(self.recognizer)
        return getattr(self.load(), "recognizes", lambda path: False)


def _format(name: str, reader: str, writer: str = "", patterns: str = "", **options: Any) -> Format:
    """Returns a format of this project, in the folder of its name or in `folder`."""
    folder = f"rlds.formats.{options.pop('folder', name)}."
    reader = reader if ":" in reader else f"source:{reader}"
    metadata_paths: dict[str, Any] = {
        key: tuple(posixpath.join(f"/{name}", path)[1:] for path in text.split())
        for key, text in _METADATA_PATHS.get(name, {}).items()
    }
    files = options.get("files")
    function = options.pop("finder", f"{reader.partition(':')[0]}:recognizes")
    return Format(
        name,
        folder + reader,
        writer and f"{folder}export:{writer}",
        tuple(patterns.split()) or (files.names if files else ()),
        recognizer="" if files else function if function.startswith("rlds.") else folder + function,
        **metadata_paths,
        **options,
    )


# Paths of metadata about files or their origin; see `Format`. A path starts at the name of the
# format, or at the root if it begins with a slash.
_METADATA_PATHS: Mapping[str, Mapping[str, str]] = {
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
    "rlu_atari": {"counted": "/raw_files/*"},  # Covers all of RL Unplugged.
}


# Signs of HDF5 files: one per episode, one for all, or with a row of arrays for each step.
_HDF5, _EPISODE = "*.h5 *.hdf5", "episode_[0-9]*.h5 episode_[0-9]*.hdf5"
_ALOHA = FileSigns(_EPISODE, ("action observations/qpos",))
_ROBOMIMIC = FileSigns(_HDF5, ("data/*/actions",))
_MANISKILL = FileSigns(_HDF5, ("traj_#/actions",), max_files=1)
_ROBOMIND = FileSigns("trajectory.hdf5 **/trajectory.hdf5", ("puppet master",))
_DROID = FileSigns("**/trajectory.h5", ("action observation",))
_ARRAYS = "observations actions rewards{} terminals{} {}episode_terminals"
_D3RLPY = FileSigns(
    _HDF5, ("columns num_episodes version", _ARRAYS.format("", "", "")), max_files=0
)
# Published files have rewards or terminals in a column, but not both.
_D4RL = FileSigns(
    _HDF5,
    tuple(_ARRAYS.format(*n, "!") for n in ((":1", ":1"), (":1", ":2"), (":2", ":1"))),
    max_files=0,
)
_PYBULLET = FileSigns(_HDF5, (_ARRAYS.format(":2", ":2", "!"),), max_files=0)
# Signs of other files.
_NPZ = FileSigns("*.npz", ("action", "actions"))
_SB3 = FileSigns("*.pkl", ("stable_baselines3.common.buffers", "stable_baselines3.her"))
_IMITATION = FileSigns("./dataset_info.json", ('"obs" "acts" "terminal"',))
_LEROBOT = FileSigns("meta/info.json", ('"codebase_version" "features"',))
_CALVIN = FileSigns("./{0} training/{0} validation/{0}".format("ep_start_end_ids.npy"))
_CHECKPOINTS = FileSigns("**/$store$_*_ckpt.*.gz")
_ZARR = FileSigns("*.zarr.zip ./{0} replay_buffer.zarr/{0}".format("meta/episode_ends/.zarray"))
_MINARI = "metadata.json *-v[0-9]*"
_RECORDS = "*-of-[0-9]* *.tfrecord*"
_LOG, _BAG = "metadata.riegeli", "*.bag *.db3 *.mcap *.zstd metadata.yaml"
_AGIBOT = FileSigns("task_info/task_[0-9]*.json")
_FIND_LOGS = "rlds.sources.dataset_search:find_logs"
_IN_LOGS: Any = {"folder": "logs", "finder": _FIND_LOGS, "marker": _LOG}
_IN_BAGS: Any = {"folder": "bags", "is_fallback": True}
_IN_CREATOR: Any = {"folder": "google_creator", "finder": "source:pickles_in"}
_IN_RLU: Any = {"folder": "rlu", "finder": "source:product_of", "is_fallback": True}
_RLU = "atari atari_transitions bsuite control_suite control_suite_windows dmlab locomotion "
_RLU += "locomotion_windows rwrl"
_FORMATS = (
    _format("envlogger", "EnvLoggerSource", "EnvLoggerExport", _LOG, **_IN_LOGS),
    _format("tfds", "FolderSource", "TfdsExport", "features.json", marker="dataset_info.json"),
    _format("minari", "MinariSource", "MinariExport", _MINARI, marker="data/metadata.json"),
    _format("lerobot", "LeRobotSource", "LeRobotExport", files=_LEROBOT, marker="meta/info.json"),
    _format("aloha", "AlohaSource", "AlohaExport", files=_ALOHA),
    _format("webdataset", "WebdatasetSource", "WebdatasetExport", "*.tar", is_fallback=True),
    _format("calvin", "CalvinSource", files=_CALVIN),
    _format("zarr", "ZarrSource", "ZarrExport", files=_ZARR, folder="zarr_buffers"),
    _format("robomimic", "RobomimicSource", "RobomimicExport", files=_ROBOMIMIC),
    _format("maniskill", "ManiSkillSource", "ManiSkillExport", files=_MANISKILL),
    _format("robomind", "RoboMindSource", files=_ROBOMIND),
    _format("droid", "DroidSource", patterns="metadata_*.json", files=_DROID),
    _format(
        "agibot",
        "AgiBotSource",
        patterns="proprio_stats",
        files=FileSigns("task_info/task_[0-9]*.json"),
    ),
    _format("mcap", "McapSource", "McapExport", "*.mcap*", finder="recordings:is_mcap", **_IN_BAGS),
    _format("rosbag", "RosbagSource", patterns=_BAG, finder="recordings:is_rosbag", **_IN_BAGS),
    _format("npz", "NpzSource", files=_NPZ, is_fallback=True),
    _format("layout", "LayoutSource", files=FileSigns("./rlds_layout.yaml")),
    _format("ogbench", "OGBenchSource", patterns="*.npz"),
    _format("sb3", "Sb3Source", files=_SB3),
    _format("d3rlpy", "D3rlpySource", "D3rlpyExport", files=_D3RLPY),
    _format("imitation", "ImitationSource", patterns="state.json", files=_IMITATION),
    _format("d4rl", "D4rlSource", "D4rlExport", files=_D4RL),
    _format("d4rl_pybullet", "pybullet:D4rlPybulletSource", folder="d4rl", files=_PYBULLET),
    _format("atari_dqn_replay", "AtariDqnReplaySource", files=_CHECKPOINTS),
    _format("rlds_creator", "RldsCreatorSource", patterns="*.pkl *.zip", **_IN_CREATOR),
    *(
        _format(f"rlu_{m}", f"{m}:Rlu{m.title().replace('_', '')}Source", "", _RECORDS, **_IN_RLU)
        for m in _RLU.split()
    ),
)


def formats() -> dict[str, Format]:
    """Returns the formats that can be opened, by name.

    Other distributions add formats by entry points of the group `rlds.sources`: the name of an
    entry point is the name of the format, and its value the class that reads it, a `Source`.

    >>> formats()["minari"].description
    'The episodes of a Minari dataset in any of its formats: HDF5, Arrow, Parquet.'
    """
    by_name = {format.name: format for format in _FORMATS}
    for name, target in _find_registered().items():
        if name in by_name:
            raise _conflict(name, by_name[name].target, target)
        by_name[name] = Format(name, target)
    return by_name


def _load(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


@functools.cache
def _find_registered() -> dict[str, str]:
    from importlib import metadata  # This import is slow.

    targets: dict[str, str] = {}
    for point in metadata.entry_points(group=ENTRY_POINTS):
        if targets.setdefault(point.name, point.value) != point.value:
            raise _conflict(point.name, targets[point.name], point.value)
    return targets


def _conflict(name: str, first: str, second: str) -> ValueError:
    return ValueError(f"two formats have the name {name!r}: {first} and {second}; uninstall one")
