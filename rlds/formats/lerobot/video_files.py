"""Videos of LeRobot datasets that are made of clips: several episodes in a file, or one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlds.video.container import Clip, JoinedClip, join_clips

__all__ = ["SpooledClips", "VideoFiles"]

_MEGABYTE = 1 << 20


class SpooledClips(Sequence[Clip]):
    """Clips on the disk: those of a file may be more than there is memory for."""

    def __init__(self) -> None:
        self._file: Any = None
        self._places: list[tuple[int, int, int, int | None]] = []
        self.size = 0

    def append(self, clip: Clip) -> None:
        """Adds a clip."""
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._file.seek(self.size)
        self._file.write(clip.data)
        self._places.append((self.size, len(clip.data), clip.first, clip.num_frames))
        self.size += len(clip.data)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        begin, size, first, num_frames = self._places[index]
        self._file.seek(begin)
        return Clip(self._file.read(size), first, num_frames)

    def clear(self) -> None:
        """Takes all clips out."""
        if self._file is not None:
            self._file.close()
        self._file, self._places, self.size = None, [], 0


class VideoFiles:
    """The files of a video feature that clips are added to, one after the other.

    Args:
      directory: The folder that `template` begins in.
      template: Their names, by `video_key`, `chunk_index` and `file_index`.
      feature: The name of the feature.
      most_megabytes: How large a file becomes; a single clip may be larger. With 0, each clip is
        a file of its own, byte by byte.
      files_per_chunk: How many files there are in a chunk.

    Attributes:
      clips: The clips that are not written yet.
    """

    def __init__(
        self,
        directory: Path,
        template: str,
        feature: str,
        *,
        most_megabytes: float,
        files_per_chunk: int = 1000,
    ) -> None:
        self._directory, self._template, self._feature = directory, template, feature
        self._most, self._per_chunk = most_megabytes * _MEGABYTE, files_per_chunk
        self._file = 0
        self.clips = SpooledClips()
        self._waiting: list[Callable[[int, int, JoinedClip], None]] = []

    def add(self, clip: Clip, when_written: Callable[[int, int, JoinedClip], None]) -> None:
        """Adds the frames of an episode.

        Args:
          clip: The clip.
          when_written: Is called when its file is complete, with the chunk, the file, and where the
            frames are in it.
        """
        if len(self.clips) and self.clips.size + len(clip.data) >= self._most:
            self.close()
        self.clips.append(clip)
        self._waiting.append(when_written)

    def close(self) -> None:
        """Completes the file."""
        if len(self.clips):
            chunk, file = divmod(self._file, self._per_chunk)
            name = self._template.format(
                video_key=self._feature, chunk_index=chunk, file_index=file
            )
            path = self._directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            for when_written, place in zip(self._waiting, join_clips(self.clips, path)):
                when_written(chunk, file, place)
            self._file += 1
        self.clips.clear()
        self._waiting = []
