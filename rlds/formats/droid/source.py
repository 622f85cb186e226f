"""DROID as its labs recorded it: a folder for each episode, anywhere below a folder.

    metadata_<uuid>.json            operator, location, time, task, serial numbers of cameras
    trajectory.h5                   action/... and observation/..., a row for each step, at 15 Hz
    recordings/MP4/<serial>.mp4     the video of a camera; <serial>-stereo.mp4 has both lenses

Serial numbers of cameras differ between robots. Here, cameras have the names of their roles in the
metadata: `wrist`, `ext1`, `ext2`.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from etils import epath
from typing_extensions import override

from rlds.formats.hdf5_source import Channels, Hdf5Episode, Hdf5EpisodesSource, Hdf5Table
from rlds.raw_files.hdf5_access import Hdf5File
from rlds.raw_files.hdf5_episodes import EpisodeGroup
from rlds.raw_files.input_files import natural_order, present
from rlds.raw_files.untrusted import check_is_file, check_link, folders_in, is_there, source_errors
from rlds.sources.source import SourceError, SourceInfo
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.fields import Field

__all__ = ["DroidSource"]

_TRAJECTORY_FILE, _METADATA_PREFIX, _VIDEOS = "trajectory.h5", "metadata_", ("recordings", "MP4")
_CAMERA_ROLES = ("wrist", "ext1", "ext2")
_IMAGES = "observation/images"
_RATE_HZ = 15
# The maximum number of levels of folders between the root and the episodes.
_MAX_LEVELS = 6

_POSE, _JOINTS = ("x", "y", "z", "roll", "pitch", "yaw"), tuple(f"joint_{i}" for i in range(1, 8))
_FLANGE = "of the flange of the wrist, not of the tool, in the frame of the base"
_TABLE = Hdf5Table(
    steps={"action": "action", "observation": "observation"},
    actions="action",
    channels={
        "cartesian_position": Channels(_POSE, "m, rad", f"Position and Euler angles {_FLANGE}."),
        "cartesian_velocity": Channels(
            _POSE, None, f"Velocity {_FLANGE}, from -1 to 1.", "velocity"
        ),
        "target_cartesian_position": Channels(
            _POSE, "m, rad", f"Target position {_FLANGE}.", "absolute"
        ),
        "joint_position": Channels(_JOINTS, "rad", "Target positions of the joints.", "absolute"),
        "joint_positions": Channels(_JOINTS, "rad", "Positions of the joints."),
        "joint_velocity": Channels(
            _JOINTS, None, "Target velocities of the joints, from -1 to 1.", "velocity"
        ),
        "joint_velocities": Channels(_JOINTS, "rad/s", "Velocities of the joints."),
        "gripper_position": Channels(doc="0 is open, 1 is closed."),
        "target_gripper_position": Channels(doc="0 is open, 1 is closed."),
    },
)


class DroidSource(Hdf5EpisodesSource):
    """Raw episodes of DROID in a folder; the first readable one defines the fields of all.

    All arrays of the file keep their names: `action/...`, `observation/...`. The instruction is the
    `current_task` of the metadata. Videos stay packets; if a video has fewer frames than steps, the
    last steps have none. The `success` of an episode comes from its path (`.../success/...`,
    `.../failure/...`), or else from the metadata. An episode also has `metadata` and `attributes`
    (of the HDF5 file) in JSON.

    Args:
      path: The folder of an episode, or a folder above.
      video: Whether the steps have the frames of the videos, see `rlds.sources.video_frames`.

    Raises:
      FileNotFoundError: There is no episode.
      SourceError: No episode can be read.
    """

    table = _TABLE
    has_instruction = True

    def __init__(
        self, path: str | os.PathLike[str], *, video: Literal["packets", "frames"] = "packets"
    ) -> None:
        self.video = video
        root = stores.as_path(os.path.abspath(path) if stores.is_local(path) else path)
        folders = sorted(_walk(root, _MAX_LEVELS), key=lambda path: natural_order(os.fspath(path)))
        if not folders:
            raise FileNotFoundError(f"{os.fspath(path)!r} has no {_TRAJECTORY_FILE} below it.")
        uuids = [_uuid_of(folder) for folder in folders]
        episodes = []
        for uuid, folder in zip(uuids, folders, strict=True):
            name = os.fspath(folder).removeprefix(os.fspath(root)).strip("/") or str(folder.name)
            key = uuid if uuid and uuids.count(uuid) == 1 else name
            file = folder / _TRAJECTORY_FILE
            episodes.append(Hdf5Episode(key, file, f"{name}/{_TRAJECTORY_FILE}"))
        self._set_episodes({"train": episodes})

    def _group(self, hdf5: Hdf5File, file: Any, episode: Hdf5Episode) -> EpisodeGroup:
        return _Trajectory(hdf5, file, _roles(_metadata_of(episode)))

    def _videos(self, episode: Hdf5Episode) -> Mapping[str, epath.Path]:
        videos = episode.file.parent.joinpath(*_VIDEOS)
        check_link(videos.parent)
        check_link(videos)
        serials = {role: serial for serial, role in _roles(_metadata_of(episode)).items()}
        files = {
            f"{_IMAGES}/{role}{kind}": videos / f"{serials.get(role, role)}{ending}.mp4"
            for role in _CAMERA_ROLES
            if serials.get(role, role).isalnum()
            for kind, ending in (("", ""), ("_stereo", "-stereo"))
        }
        return {camera: file for camera, file in files.items() if is_there(file)}

    def _instruction(self, episode: Hdf5Episode, group: EpisodeGroup) -> str:
        task = _metadata_of(episode).get("current_task")
        return task if isinstance(task, str) else ""

    def _other_values(self, episode: Hdf5Episode) -> Mapping[str, Any]:
        metadata, folders = _metadata_of(episode), episode.file.parent.parts
        is_success = metadata.get("success", False) and "failure" not in folders
        return {
            "success": "success" in folders or bool(is_success),
            "metadata": json.dumps(metadata),
        }

    def _other_fields(self) -> Mapping[str, Field]:
        return {"success": Field(np.bool_), "metadata": Field(str, doc="In JSON.")}

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        cameras = [camera.rpartition("/")[2] for camera in self._cameras]
        return SourceInfo(
            description="Raw episodes of DROID.",
            homepage="https://droid-dataset.github.io",
            license="CC BY 4.0",
            metadata={"droid": {"control_frequency_hz": _RATE_HZ, "cameras": cameras}},
            options={"video": self.video},
            aliases=self.table.aliases,
        )

    @override
    def inputs(self) -> Sequence[epath.Path]:
        files = []
        for _, file, _ in self._episodes["train"]:
            folder, uuid = file.parent, _uuid_of(file.parent)
            episode_files = [file, *([folder / f"{_METADATA_PREFIX}{uuid}.json"] if uuid else [])]
            videos = folder.joinpath(*_VIDEOS)
            if videos.is_dir():
                names = [entry.name for entry in stores.list_directory(videos)]
                episode_files += [videos / name for name in names if name.endswith(".mp4")]
            files += present(episode_files)
        return files


class _Trajectory(EpisodeGroup):
    """A trajectory file, with roles of cameras in array paths instead of serial numbers."""

    def __init__(self, hdf5: Hdf5File, group: Any, roles: Mapping[str, str]) -> None:
        super().__init__(hdf5, group)

        def rename(name: str) -> str:
            serial, underscore, suffix = name.partition("_")
            return f"{roles.get(serial, serial)}{underscore}{suffix}"

        self.arrays = {
            "/".join(map(rename, path.split("/"))): array for path, array in self.arrays.items()
        }

    def attributes(self) -> dict[str, Any]:
        """Returns all attributes as text, because attributes differ between labs."""
        values = super().attributes()
        return {"attributes": json.dumps({name: _as_json(values[name]) for name in sorted(values)})}


def _as_json(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _metadata_of(episode: Hdf5Episode) -> dict[str, Any]:
    folder = episode.file.parent
    if not (uuid := _uuid_of(folder)):
        problem = f"the file {_METADATA_PREFIX}<uuid>.json is missing"
        raise SourceError(problem, file=folder, episode=episode.key)
    file = folder / f"{_METADATA_PREFIX}{uuid}.json"
    check_is_file(file)
    with source_errors(file, episode=episode.key):
        metadata = json.loads(file.read_bytes())
        if not isinstance(metadata, dict):
            raise SourceError("expected a JSON object", file=file)
        return metadata


def _roles(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Returns the roles of cameras, by their serial numbers."""
    roles = {str(metadata.get(f"{role}_cam_serial") or ""): role for role in _CAMERA_ROLES}
    return {serial: role for serial, role in roles.items() if serial}


def _uuid_of(folder: epath.Path) -> str:
    """Returns the UUID of the metadata file in a folder; empty if there is none."""
    for entry in stores.list_directory(folder):
        name = str(entry.name)
        if name.startswith(_METADATA_PREFIX) and name.endswith(".json") and not entry.is_dir:
            return name[len(_METADATA_PREFIX) : -len(".json")]
    return ""


def _walk(folder: epath.Path, levels: int) -> Iterator[epath.Path]:
    """Yields the folders of episodes at a path or below it."""
    if not folder.is_dir():
        return
    names = [entry.name for entry in stores.list_directory(folder)]
    if _TRAJECTORY_FILE in names or any(
        name.startswith(_METADATA_PREFIX) and name.endswith(".json") for name in names
    ):
        yield folder
        return
    for name in folders_in(folder) if levels else ():
        yield from _walk(folder / name, levels - 1)
