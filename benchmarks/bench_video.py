"""How fast shuffled windows of frames come out of clips: `rlds.feeds` beside the decoder alone.

    python benchmarks/bench_video.py [--episodes N] [--frames N] [--windows N] [--rounds N] [--json]

A dataset of TFDS has a clip of 480 x 640 pixels for each episode. A batch has 16 windows of
consecutive frames, from anywhere in the dataset. The decoder alone is PyAV as one would write it by
hand: all files open, seek to the keyframe, decode up to the frame, convert it to RGB; nothing else
of a batch is made. Both use one thread, and their pixels are compared.

The ratio is the processor time of the decoder alone to that of the feed.
"""

import argparse
import io
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import av
import numpy as np
import rounds
from rich.console import Console
from rich.table import Table

import rlds.feeds
from rlds.alignment import from_sars
from rlds.sources.episodes import Episodes
from rlds.sources.source import Origin, RandomAccessSource, SourceEpisode
from rlds.video import VIDEO
from rlds.video.container import Clip
from rlds.video.fields import clip_fields, clip_values
from rlds_ecosystem.fields import Field

CODECS = {
    "h264 g=2": ("libx264", {"g": "2", "crf": "23"}),
    "h264 g=30": ("libx264", {"g": "30", "crf": "23"}),
    "AV1 g=2": ("libsvtav1", {"g": "2", "crf": "30", "preset": "12"}),
    "AV1 g=30": ("libsvtav1", {"g": "30", "crf": "30", "preset": "12"}),
}
LENGTHS = (1, 4)
BATCH, GOAL = 16, 0.8
OURS, BARE = "rlds.feeds", "decoder alone"


def encode(codec: str, options: Mapping[str, str], frames: int, seed: int) -> bytes:
    """Returns a video of a box that moves over a noisy ground."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:480, :640]
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream(codec, rate=30, options=dict(options))
        stream.width, stream.height, stream.pix_fmt = 640, 480, "yuv420p"
        for index in range(frames):
            channels = [columns + 3 * index, rows + 2 * index, rows + columns + index]
            image = (np.stack(channels, -1) % 256).astype(np.int16)
            image[100 + index % 200 : 180 + index % 200, 200:300] = (200, 40, 90)
            image += rng.integers(-12, 12, image.shape, np.int16)
            picture = np.clip(image, 0, 255).astype(np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return file.getvalue()


class Clips(RandomAccessSource):
    """An episode for each clip; its action says which step is which."""

    def __init__(self, clips: list[bytes], frames: int) -> None:
        self.clips, self.frames = clips, frames

    def inputs(self) -> list[Any]:
        """None: they are made."""
        return []

    def num_episodes(self, split: str) -> int:
        """One for each."""
        return len(self.clips)

    def key(self, split: str, index: int) -> str:
        """The number of the clip."""
        return str(index)

    def step_fields(self) -> Mapping[str, Any]:
        """No pixels."""
        return {"observation": {"joints": Field(np.float32, (14,))}, "action": np.int64} | {
            "discount": np.float32
        }

    def episode_fields(self) -> Mapping[str, Any]:
        """One camera."""
        return {VIDEO: {"observation": {"camera": clip_fields()}}}

    def read(self, split: str, index: int) -> SourceEpisode:
        """An episode that was not finished."""
        return SourceEpisode(
            key=self.key(split, index),
            steps=from_sars(
                observation={"joints": np.zeros((self.frames, 14), np.float32)},
                action=np.arange(self.frames) + index * self.frames,
                reward=None,
                terminal=False,
            ),
            origin=Origin("clips", 0, self.frames),
            final_observation_known=False,
            truncated=True,
            metadata={VIDEO: {"observation": {"camera": clip_values(Clip(self.clips[index]))}}},
        )


class Bare:
    """PyAV, with all files open."""

    def __init__(self, clips: list[bytes]) -> None:
        self.containers = [av.open(io.BytesIO(clip)) for clip in clips]
        for container in self.containers:
            container.streams.video[0].codec_context.thread_count = 1
        stream = self.containers[0].streams.video[0]
        self.duration = int(1 / stream.average_rate / stream.time_base)

    def window(self, clip: int, begin: int, length: int) -> np.ndarray:
        """Returns consecutive frames."""
        container = self.containers[clip]
        stream, wanted = container.streams.video[0], begin * self.duration
        container.seek(wanted, stream=stream)
        found: list[np.ndarray] = []
        for frame in container.decode(stream):
            if frame.pts >= wanted:
                found.append(frame.to_ndarray(format="rgb24"))
                if len(found) == length:
                    break
        return np.stack(found)


def measure(clips: list[bytes], arguments: argparse.Namespace, length: int) -> dict[str, Any]:
    """Returns the times of both."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "dataset")
        rlds.feeds.materialise(Episodes(Clips(clips, arguments.frames)), path)
        table = rlds.feeds.open(path, video="frames", fields=["observation/camera", "action"])
        samples = table.segments(length, shift=1)
        feed = rlds.feeds.Feed(samples, batch_size=BATCH, seed=0, shuffle="global")
        bare = Bare(clips)
        numbers = range(max(arguments.windows // BATCH, 1))
        places = [
            [divmod(int(action), arguments.frames) for action in feed[number]["action"][:, 0]]
            for number in numbers
        ]

        def decode() -> None:
            for windows in places:
                np.stack([bare.window(*place, length) for place in windows])

        def make_batches() -> None:
            for number in numbers:
                feed[number]

        pixels = np.stack([bare.window(*place, length) for place in places[0]])
        np.testing.assert_array_equal(feed[0]["observation"]["camera"], pixels)
        return rounds.take_turns({OURS: make_batches, BARE: decode}, arguments.rounds)


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--frames", type=int, default=120)
    parser.add_argument("--windows", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("SVT_LOG", "1")
    table = Table("video", "window", OURS, BARE, f"ratio (goal {GOAL})")
    for name, (codec, options) in CODECS.items():
        clips = [
            encode(codec, options, arguments.frames, seed) for seed in range(arguments.episodes)
        ]
        for length in LENGTHS:
            times = measure(clips, arguments, length)
            if arguments.json:
                rounds.report(f"{name}, windows of {length}", times)
                continue
            made = max(arguments.windows // BATCH, 1) * BATCH * length
            ours, bare = (rounds.medians(times)[who][0] for who in (OURS, BARE))
            speeds = [f"{made / seconds:.0f} frames/s" for seconds in (ours, bare)]
            table.add_row(name, str(length), *speeds, f"{bare / ours:.2f}")
    if not arguments.json:
        Console().print(table)


if __name__ == "__main__":
    main()
