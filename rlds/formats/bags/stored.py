"""Episodes that were exported as MCAP files: they come back as they were."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rlds.formats.bags.config import FieldOf
from rlds.formats.bags.definitions import decoder
from rlds.formats.bags.messages import Channel, Flaws
from rlds.formats.bags.recordings import Recording
from rlds.formats.bags.values import pick
from rlds.raw_files.untrusted import source_errors
from rlds.sources.sidecar import Sidecar
from rlds.sources.source import SourceEpisode, SourceError
from rlds_ecosystem.fields import Field

__all__ = ["EPISODE_ATTACHMENT", "RLDS_RECORD", "StoredEpisodes", "sidecar_in"]

RLDS_RECORD, EPISODE_ATTACHMENT = "rlds", "rlds/episode"


def sidecar_in(recording: Recording) -> Sidecar | None:
    """Returns the sidecar in a recording; None if it is no episode that was exported.

    Raises:
      SourceError: It is damaged.
    """
    record = dict(recording.metadata()).get(RLDS_RECORD)
    with source_errors(recording.files[0]):
        return None if record is None else Sidecar.from_json(record["sidecar"])


class StoredEpisodes:
    """Exported episodes, one in each recording.

    Args:
      recordings: The recordings.
      sidecar: That of the first one.
    """

    def __init__(self, recordings: Sequence[Recording], sidecar: Sidecar) -> None:
        self._recordings, self.sidecar = recordings, sidecar

    def key(self, index: int) -> str:
        """Returns the key of an episode."""
        recording = self._recordings[index]
        with source_errors(recording.files[0]):
            return dict(recording.metadata())[RLDS_RECORD]["key"]

    def read(self, index: int, fields: Collection[str]) -> SourceEpisode:
        """Reads an episode.

        Args:
          index: Which.
          fields: The paths of the fields of a step that are wanted.

        Raises:
          SourceError: It is damaged.
        """
        recording = self._recordings[index]
        packed = recording.attachment(EPISODE_ATTACHMENT)
        if packed is None:
            raise SourceError("no episode of RLDS", file=recording.files[0])
        with source_errors(recording.files[0]):
            return self.sidecar.unpack(packed, self._columns(recording, fields), fields)

    def _columns(self, recording: Recording, fields: Collection[str]) -> Mapping[str, Any]:
        paths = {topic: path for path, topic in self.sidecar.places.items() if path in fields}
        rows: dict[str, dict[int, Any]] = {path: {} for path in paths.values()}
        takers: dict[Channel, Any] = {}
        flaws = Flaws()
        for message in recording.messages(flaws, paths) if paths else ():
            channel = message.channel
            path = paths[channel.topic]
            if channel not in takers:
                takers[channel] = _taker(channel, self.sidecar.steps[path])
            rows[path][message.sequence] = takers[channel](message.data)
        if flaws.cut or flaws.damages:
            why = flaws.cut or flaws.damages[0][2]
            raise SourceError(why, file=recording.files[0])
        return {path: _column(found, self.sidecar.steps[path]) for path, found in rows.items()}


def _taker(channel: Channel, field: Field) -> Any:
    """Returns what takes the value of a field out of the bytes of its messages."""
    decode = decoder(channel)
    if channel.type.startswith("sensor_msgs/"):
        return lambda data: _image(channel, decode(data))
    shape = tuple(map(int, field.shape))  # type: ignore[arg-type]
    if not shape:
        return lambda data: decode(data)["data"]
    return lambda data: np.array(decode(data)["data"]).reshape(shape)


def _image(channel: Channel, message: Any) -> Any:
    if channel.type.endswith("CompressedImage"):
        return bytes(message["data"])
    return np.array(pick(FieldOf("x", channel.topic), channel, message).value(message))


def _column(rows: Mapping[int, Any], field: Field) -> Any:
    if sorted(rows) != list(range(len(rows))):
        raise ValueError(f"{len(rows)} messages, whose numbers have gaps")
    values = [rows[number] for number in range(len(rows))]
    if field.is_text or (values and isinstance(values[0], bytes)):
        return np.array([*values, None], object)[:-1]
    if not values:
        return np.zeros((0, *map(int, field.shape)), field.column_dtype)  # type: ignore[arg-type]
    return np.stack(values).astype(field.column_dtype, copy=False)
