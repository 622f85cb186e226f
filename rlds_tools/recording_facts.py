"""Facts about the recording of a robot dataset: robot, frame rate, cameras, tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlds_ecosystem.model.texts import shorten
from rlds_tools.results import Block, Table, count

__all__ = ["recording_facts"]

_MAX_TASKS = 5


def recording_facts(
    metadata: Mapping[str, Any], num_steps: int, episodes: Mapping[str, int]
) -> Iterator[Block]:
    """Yields recording facts from the LeRobot metadata of a dataset or of its source.

    Args:
      metadata: The metadata of the dataset.
      num_steps: The number of its steps; 0 if unknown.
      episodes: The number of episodes of each task; empty if unknown.
    """
    lerobot = _dict(metadata.get("lerobot"))
    info = _dict(lerobot.get("info"))
    notes = [str(info["robot_type"])] if info.get("robot_type") else []
    fps = info.get("fps") or metadata.get("fps")
    if isinstance(fps, int | float) and fps > 0:
        hours = num_steps / fps / 3600
        length = f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"
        notes += [f"{fps:g} frames per second", *([length] if num_steps else [])]
    if notes:
        yield f"recorded: {' · '.join(notes)}"
    features = {name: _dict(value) for name, value in _dict(info.get("features")).items()}
    cameras = {n: f for n, f in features.items() if f.get("dtype") in ("image", "video")}
    if cameras:
        rows = [_camera_row(name, feature) for name, feature in cameras.items()]
        yield Table(["camera", "height x width", "stored as"], rows)
    tasks = lerobot.get("tasks")
    tasks = list(map(_dict, tasks)) if isinstance(tasks, list) else []
    if tasks:
        texts = [str(task.get("task")) for task in tasks[:_MAX_TASKS]]
        counts = {text: f" ({count(episodes.get(text, 0), 'episode')})" for text in texts}
        lines = "; ".join(shorten(text, 80) + counts[text] * bool(episodes) for text in texts)
        yield f"{count(len(tasks), 'task')}: {lines}{'; …' if len(tasks) > _MAX_TASKS else ''}"


def _camera_row(name: str, feature: Mapping[str, Any]) -> list[str]:
    names, shape = feature.get("names"), feature.get("shape")
    sizes = list(zip(names, shape)) if isinstance(names, list) and isinstance(shape, list) else []
    size = [str(length) for side in ("height", "width") for axis, length in sizes if axis == side]
    codec = _dict(feature.get("info") or feature.get("video_info")).get("video.codec", "")
    return [f"  {name}", " x ".join(size), f"{feature['dtype']} {codec}".strip()]


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
