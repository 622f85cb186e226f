"""What a dataset of a robot says of its recording: robot, frame rate, cameras, tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlds_ecosystem.texts import shorten
from rlds_tools.results import Block, Table, count

__all__ = ["recording_facts"]

_SHOWN_TASKS = 5


def recording_facts(metadata: Mapping[str, Any], num_steps: int) -> Iterator[Block]:
    """Yields what the metadata of a LeRobot dataset, or of one that was made of it, says.

    Args:
      metadata: The metadata of the dataset.
      num_steps: The number of its steps.
    """
    recorded = metadata.get("lerobot")
    info = recorded.get("info") if isinstance(recorded, Mapping) else None
    if not isinstance(recorded, Mapping) or not isinstance(info, Mapping):
        return
    facts = [str(info["robot_type"])] if info.get("robot_type") else []
    fps = info.get("fps")
    if isinstance(fps, int | float) and fps > 0:
        hours = num_steps / fps / 3600
        length = f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"
        facts += [f"{fps:g} frames per second", length]
    yield f"robot: {' · '.join(facts)}"
    features = info.get("features")
    rows = [_camera(*item) for item in features.items()] if isinstance(features, Mapping) else []
    if cameras := [row for row in rows if row]:
        yield Table(["camera", "height x width", "stored as"], cameras)
    tasks = recorded.get("tasks")
    rows_of_tasks = tasks if isinstance(tasks, list) else []
    if texts := [task.get("task") for task in rows_of_tasks if isinstance(task, Mapping)]:
        shown = "; ".join(shorten(str(text), 80) for text in texts[:_SHOWN_TASKS])
        yield f"{count(len(texts), 'task')}: {shown}{'; …' if len(texts) > _SHOWN_TASKS else ''}"


def _camera(name: str, feature: Any) -> list[str]:
    """The row of a camera; empty for other features."""
    if not isinstance(feature, Mapping) or feature.get("dtype") not in ("image", "video"):
        return []
    names, shape = feature.get("names"), feature.get("shape")
    sizes = dict(zip(names, shape)) if isinstance(names, list) and isinstance(shape, list) else {}
    info = feature.get("info") or feature.get("video_info") or {}
    codec = info.get("video.codec", "") if isinstance(info, Mapping) else ""
    size = f"{sizes.get('height', '?')} x {sizes.get('width', '?')}"
    return [f"  {name}", size, f"{feature['dtype']} {codec}".strip()]
