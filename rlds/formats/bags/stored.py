"""Lossless reading of MCAP files that RLDS exported."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rlds.formats.bags.config import FieldConfig
from rlds.formats.bags.definitions import make_decoder
from rlds.formats.bags.messages import BagDamage, Channel
from rlds.formats.bags.recordings import BagRecording
from rlds.formats.bags.values import make_reader
from rlds.formats.bags.videos import is_keyframe
from rlds.raw_files.untrusted import source_errors
from rlds.sources.sidecar import Sidecar
from rlds.sources.source import SourceEpisode, SourceError
from rlds.video.encoding import clip_of
from rlds.video.fields import clip_values
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.fields import BGR, Field

__all__ = ["EPISODE_ATTACHMENT", "RATE", "RLDS_RECORD", "StoredEpisodes", "sidecar_in"]

RLDS_RECORD, EPISODE_ATTACHMENT = "rlds", "rlds/episode"
RATE = "rate"  # The metadata key of the frame rate of video.


def sidecar_in(recording: BagRecording) -> Sidecar | None:
    """Returns the sidecar in a recording; None if RLDS did not export it.

    Raises:
      SourceError: The sidecar is damaged.
    """
    record = dict(recording.metadata()).get(RLDS_RECORD)
    with source_errors(recording.files[0]):
        return None if record is None else Sidecar.from_json(record["sidecar"])


class StoredEpisodes:
    """Exported episodes, with a recording for each episode.

    Args:
      recordings: The recordings.
      sidecar: The sidecar of the first recording.
    """

    def __init__(self, recordings: Sequence[BagRecording], sidecar: Sidecar) -> None:
        self._recordings, self.sidecar = recordings, sidecar

    def key(self, index: int) -> str:
        """Returns the key of an episode."""
        recording = self._recordings[index]
        with source_errors(recording.files[0]):
            return dict(recording.metadata())[RLDS_RECORD]["key"]

    def read(
        self, index: int, fields: Collection[str], episode_fields: Collection[str]
    ) -> SourceEpisode:
        """Reads an episode.

        Args:
          index: The index of the episode.
          fields: The paths of the requested fields of steps.
          episode_fields: The paths of the requested fields of the episode.

        Raises:
          SourceError: The episode is damaged.
        """
        recording = self._recordings[index]
        attachment = recording.attachment(EPISODE_ATTACHMENT)
        if attachment is None:
            raise SourceError("not an episode that RLDS exported", file=recording.files[0])
        with source_errors(recording.files[0]):
            topics = self.sidecar.episode_paths.items()
            videos = {t: path.rpartition("/")[0] for path, t in topics if path in episode_fields}
            columns = self._columns(recording, fields, videos)
            rate = float(dict(recording.metadata())[RLDS_RECORD].get(RATE, 0))
            values: dict[str, Any] = {}
            for camera in videos.values():
                packets = columns.pop(camera).tolist()
                is_key = np.array([is_keyframe(packet, "h264") for packet in packets], np.bool_)
                clip = clip_values(clip_of(packets, is_key, "h264", rate))
                values |= {f"{camera}/{name}": value for name, value in clip.items()}
            return self.sidecar.unpack(attachment, columns, fields, values)

    def _columns(
        self, recording: BagRecording, fields: Collection[str], videos: Mapping[str, str]
    ) -> dict[str, Any]:
        paths = {topic: path for path, topic in self.sidecar.paths.items() if path in fields}
        paths |= videos
        kinds = {**self.sidecar.steps, **dict.fromkeys(videos.values(), Field(bytes))}
        rows: dict[str, dict[int, Any]] = {path: {} for path in paths.values()}
        extractors: dict[Channel, Any] = {}
        damage = BagDamage()
        for message in recording.messages(damage, paths) if paths else ():
            channel = message.channel
            path = paths[channel.topic]
            if channel not in extractors:
                extractors[channel] = _make_extractor(channel, kinds[path])
            rows[path][message.sequence] = extractors[channel](message.data)
        if damage.cut or damage.gaps:
            raise SourceError(damage.cut or damage.gaps[0][2], file=recording.files[0])
        return {path: _column(messages, kinds[path]) for path, messages in rows.items()}


def _make_extractor(channel: Channel, field: Field) -> Any:
    """Returns a function that extracts a field from the bytes of a message."""
    decode = make_decoder(channel)
    if channel.type.startswith("sensor_msgs/"):
        return lambda data: _image(channel, decode(data), field)
    if channel.type.startswith("foxglove_msgs/"):
        return lambda data: bytes(decode(data)["data"])
    shape = tuple(map(int, field.shape))  # type: ignore[arg-type]
    if not shape:
        return lambda data: decode(data)["data"]
    return lambda data: np.array(decode(data)["data"]).reshape(shape)


def _image(channel: Channel, message: Any, field: Field) -> Any:
    if channel.type.endswith("CompressedImage"):
        return bytes(message["data"])
    image = np.array(make_reader(FieldConfig("x", channel.topic), channel, message).value(message))
    is_swapped = field.names == BGR and message["encoding"] == "bgr8"
    return image[..., ::-1] if is_swapped else image


def _column(rows: Mapping[int, Any], field: Field) -> Any:
    if sorted(rows) != list(range(len(rows))):
        raise ValueError(f"{len(rows)} messages, but their numbers have gaps")
    values = [rows[sequence] for sequence in range(len(rows))]
    if field.is_text or (values and isinstance(values[0], bytes)):
        return objects(values)
    if not values:
        return np.zeros((0, *map(int, field.shape)), field.column_dtype)  # type: ignore[arg-type]
    return np.stack(values).astype(field.column_dtype, copy=False)
