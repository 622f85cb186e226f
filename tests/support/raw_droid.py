"""Small folders of raw DROID, with its oddities."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from videos import encoded

SERIALS = ({"wrist": "13062452", "ext1": "20103212"}, {"wrist": "18659563", "ext1": "22246076"})


def write_episode(
    folder: Path, steps: int, *, index: int = 0, frames: int | None = None, **changes: Any
) -> dict[str, Any]:
    """Writes an episode; the serial numbers of its cameras differ from those of the last one.

    Args:
      folder: Its folder.
      steps: The number of rows.
      index: Its index.
      frames: The number of frames of its videos.
      **changes: Other values of its metadata.

    Returns:
      The arrays, with roles of cameras in their names.
    """
    rng = np.random.default_rng(index)
    serials = SERIALS[index % 2]
    arrays = {
        "action/cartesian_position": rng.normal(size=(steps, 6)),
        "action/gripper_position": rng.random(steps),
        "action/joint_velocity": rng.normal(size=(steps, 7)),
        "observation/robot_state/cartesian_position": rng.normal(size=(steps, 6)),
        "observation/robot_state/joint_positions": rng.normal(size=(steps, 7)),
        "observation/controller_info/movement_enabled": rng.random(steps) < 0.5,
        "observation/timestamp/skip_action": rng.random(steps) < 0.5,
        **{
            f"observation/camera_extrinsics/{role}_left": rng.random((steps, 6)) for role in serials
        },
        **{
            f"observation/timestamp/cameras/{role}_read_end": rng.integers(0, 9, steps)
            for role in serials
        },
    }
    videos = folder / "recordings" / "MP4"
    videos.mkdir(parents=True)
    with h5py.File(folder / "trajectory.h5", "w") as file:
        for path, values in arrays.items():
            for role, serial in serials.items():
                path = path.replace(f"/{role}_", f"/{serial}_")
            file[path] = values
        file.attrs["success"] = True
        file.attrs["user"] = f"user {index}"
    for camera, serial in enumerate(serials.values()):
        data = encoded("h264", steps if frames is None else frames, seed=2 * index + camera, fps=15)
        (videos / f"{serial}.mp4").write_bytes(data)
    uuid = f"LAB+{index:04}+2023-07-07"
    metadata = {
        "uuid": uuid,
        "current_task": f"Put {index} in the bowl ü",
        "success": True,
        "trajectory_length": steps,
        **{f"{role}_cam_serial": serial for role, serial in serials.items()},
        **changes,
    }
    (folder / f"metadata_{uuid}.json").write_text(json.dumps(metadata))
    return arrays


def write_folder(path: Path, lengths: tuple[int, ...] = (5, 8, 6)) -> list[dict[str, Any]]:
    """Writes episodes, every second one a failure; returns their arrays."""
    arrays = []
    for index, steps in enumerate(lengths):
        end = "failure" if index % 2 else "success"
        folder = path / "LAB" / end / "2023-07-07" / f"Fri_Jul__7_09-42-{index}"
        frames = steps - 1 if index == 2 else steps
        arrays.append(write_episode(folder, steps, index=index, frames=frames))
    order = sorted(range(len(lengths)), key=lambda index: (index % 2 == 0, index))
    return [arrays[index] for index in order]
