"""Exports to LeRobot datasets of versions 3.0 and 2.1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import google_crc32c
from etils import epath
from typing_extensions import override

import rlds
from rlds.formats.lerobot.dataset_files import write_json
from rlds.formats.lerobot.kept_features import kept_features
from rlds.formats.lerobot.layout import METADATA_KEY, step_paths
from rlds.formats.lerobot.lerobot_rows import LeRobotRows, original_order
from rlds.formats.lerobot.modality import MODALITY, make_modality
from rlds.formats.lerobot.rlds_rows import RldsRows
from rlds.formats.lerobot.small_files import read_info
from rlds.formats.lerobot.source import LeRobotSource
from rlds.sources.channel_order import with_rgb
from rlds.sources.encoded_clips import encodable, with_clips
from rlds.sources.episodes import Episodes
from rlds.sources.rates import rates_in
from rlds.sources.restored_source import RestoredSource
from rlds.sources.source import EpisodeSummary, Location, SourceEpisode
from rlds.sources.writing import Export, Placement, transition_needed
from rlds.video import VIDEO
from rlds_ecosystem.model.nests import leaves_at
from rlds_ecosystem.video_codec import Video

__all__ = ["LeRobotExport"]


class LeRobotExport(Export):
    """Writes a LeRobot dataset of version 3.0 or 2.1.

    Episodes from LeRobot keep their rows, statistics, packets of videos, tasks and small files,
    apart from renamed, removed and added features. Rows, episodes and tasks are renumbered, and
    files have the sizes and the names of the new version.

    For all other episodes, each transition becomes a row. Further data, such as the final
    observation, is in the sidecar, in the folder `.rlds`.

    Args:
      episodes: The episodes.
      version: The version of the format: "v3.0" for LeRobot from 0.4 on, "v2.1" for older versions,
        openpi and GR00T. By default, the version of the source, or "v3.0".
      fps: The frame rate, in steps per second; by default, the rate in the metadata.
      robot_type: The type of the robot.
      task: The path of the step field or episode field with the text of the task. By default,
        `language_instruction`, or the only text field with a name such as `instruction`, `task` or
        `prompt`. Without such a field, the task is empty.
      to_sidecar: Paths of fields that are written to the sidecar, not to columns.
      codec: The video codec for images of uint8 with three channels: "h264" or "av1". If None,
        image files stay image files, and arrays become PNG files.
      quality: The constant rate factor of the video: lower is better, and larger. By default, 23
        for H.264, and 30 for AV1, the value of LeRobot.
      gop: The length of a group of pictures, in frames: the last frame depends on the first.
      modality: True to write `meta/modality.json` for GR00T: slices of the states and actions, by
        the names of their elements, cameras, and the text of the task.
      data_files_size_in_mb: The size limit of files of rows, in MB (3.0).
      video_files_size_in_mb: The size limit of videos, in MB (3.0).

    Attributes:
      rows: The writer of the rows.

    Raises:
      ValueError: The rate is unknown, or an option is invalid.
    """

    format = "lerobot"
    copies_parts = True
    renumbers_copies: ClassVar[bool] = True

    def __init__(
        self,
        episodes: Episodes,
        *,
        version: Literal["v3.0", "v2.1"] | None = None,
        fps: float | None = None,
        robot_type: str | None = None,
        task: str | None = None,
        to_sidecar: Sequence[str] = (),
        codec: Literal["h264", "av1"] | None = None,
        quality: int | None = None,
        gop: int = 2,
        modality: bool = False,
        data_files_size_in_mb: int = 100,
        video_files_size_in_mb: int = 200,
    ) -> None:
        super().__init__(episodes)
        self._has_modality = modality
        sizes: dict[str, int] = {
            "data_files_size_in_mb": data_files_size_in_mb,
            "video_files_size_in_mb": video_files_size_in_mb,
        }
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{name}: got {size}, expected a positive number")
        if codec is None and quality is not None:
            raise ValueError("quality: pass codec, too; quality is a setting of encoded video")
        self.rows: RldsRows | LeRobotRows
        paths = [path.removeprefix(f"{VIDEO}/") for path in to_sidecar]
        cameras = encodable(episodes, paths) if codec is not None else []
        features = None if cameras else kept_features(episodes, version)
        if features is None:
            rate = _find_rate(fps, episodes, version)
            self.episodes = with_rgb(episodes, {*paths, *cameras})
            if codec is not None and cameras:
                video = Video(codec, quality, fps=rate, gop=gop, delays=True)
                self.episodes = with_clips(self.episodes, video, cameras)
            steps = {path for path, _ in leaves_at(self.episodes.spec[rlds.STEPS], None)}
            self.rows = RldsRows(
                self.episodes,
                version or "v3.0",
                {
                    "fps": rate,
                    "robot_type": robot_type or _find_robot_type(episodes.metadata),
                    **sizes,
                },
                task=task,
                to_sidecar=[p if p in steps else clip for p, clip in zip(paths, to_sidecar)],
                encoded=cameras,
            )
            return
        if fps is not None or robot_type is not None or task is not None or to_sidecar:
            raise ValueError(
                "fps, robot_type, task and to_sidecar: the episodes came from LeRobot, and keep "
                "theirs. Leave these options out"
            )
        self.rows = LeRobotRows(self, features, version, sizes)
        self.unchecked = self.rows.unchecked

    @override
    def placements(self) -> Sequence[Placement]:
        return self.rows.placements()

    @override
    def compared(self, episode: SourceEpisode) -> SourceEpisode:
        return self.rows.compared(episode)

    @override
    def stored_digest(self, location: Location) -> int:
        source, sidecar_row = location.source, b""
        if isinstance(source, RestoredSource):
            row = source.stored_sidecar.read(location.split, location.index)
            sidecar_row, source = source.stored_sidecar.sidecar.pack_row(row), source.source
        assert isinstance(source, LeRobotSource)
        digest = source.stored_digest(location.split, location.index)
        return int(google_crc32c.extend(digest, sidecar_row))

    @override
    def why_unsupported(self, summary: EpisodeSummary) -> str:
        num_transitions = summary.num_steps - summary.final_observation_known
        return transition_needed(num_transitions, "LeRobot")

    @override
    def read_options(self) -> Mapping[str, Any]:
        if isinstance(self.rows, RldsRows) or self.rows.paths == step_paths(self.rows.paths):
            return {}
        return {"flat_cameras": True}

    @override
    def files_order(self) -> Sequence[int] | None:
        return original_order(self.episodes) if isinstance(self.rows, LeRobotRows) else None

    @override
    def write(self, path: Path) -> None:
        self.rows.write(path, self)
        if self._has_modality and not (path / MODALITY).exists():
            features = read_info(epath.Path(path)).features.values()
            write_json(path / MODALITY, make_modality(features))


def _find_rate(fps: float | None, episodes: Episodes, version: str | None) -> float:
    if fps is None:
        rates = {*rates_in(episodes.metadata)}
        if len(rates) != 1:
            problem = f"the data has several ({sorted(rates)})" if rates else "the data has none"
            raise ValueError(
                f"fps: LeRobot needs the number of steps in a second, and {problem}: pass it, such "
                "as fps=10 (--to-option fps=10 on the command line)"
            )
        fps = rates.pop()
    if not 0 < fps < float("inf"):
        raise ValueError(f"fps: got {fps}, expected a positive number")
    if version == "v2.1" and fps != int(fps):
        raise ValueError(f"fps: got {fps}, but readers of version 2.1 take whole numbers only")
    return float(fps)


def _find_robot_type(metadata: Mapping[str, Any]) -> str | None:
    """Returns the robot type in metadata of any format; None if it is missing."""
    descriptions = [metadata, metadata.get(METADATA_KEY, {}).get("info", {})]
    types = (
        description["robot_type"]
        for description in descriptions
        if isinstance(description.get("robot_type"), str)
    )
    return next(types, None)
