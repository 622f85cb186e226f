"""Records a simulated arm whose devices have their own clocks, and makes steps of the recording.

    python examples/record_streams.py --seconds 5 --output out/streams

Each device has a thread that pushes what it measures when it measures it. Killed at any time, the
recording has everything up to a twentieth of a second before.
"""

import argparse
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import envlogger
import rlds.sources

TABLE = np.random.default_rng(0).integers(30, 60, (480, 640, 3), np.uint8)


def draw_frame(seconds: float) -> np.ndarray:
    """Returns the picture of a bar that swings with the arm."""
    image = TABLE.copy()
    column = int(320 + 250 * np.sin(seconds))
    image[100:400, column - 20 : column + 20] = (220, 180, 60)
    return image


CAMERAS = ("top", "wrist")
DEVICES: dict[str, tuple[float, Callable[[float], object]]] = {
    "top": (30, draw_frame),
    "wrist": (30, lambda seconds: draw_frame(2 * seconds)),
    "state": (500, lambda seconds: np.sin(seconds + np.arange(7)).astype(np.float32)),
    "force": (1000, lambda seconds: np.float32(9.81 + 0.1 * np.sin(40 * seconds))),
    "action/target": (20, lambda seconds: np.sin(seconds + 0.05 + np.arange(7)).astype(np.float32)),
}


def run(recorder: envlogger.StreamRecorder, name: str, done: threading.Event) -> None:
    """Measures at the rate of a device until the end."""
    rate, measure = DEVICES[name]
    begin = time.time_ns()
    index = 0
    while not done.is_set():
        timestamp = begin + round(index * 1e9 / rate)
        index += 1
        time.sleep(max(timestamp - time.time_ns(), 0) / 1e9)
        recorder.push(name, timestamp, measure((timestamp - begin) / 1e9))


def main() -> None:
    """Records, and prints the streams."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--output", type=Path, default=Path("out/streams"))
    arguments = parser.parse_args()
    done = threading.Event()
    video = dict.fromkeys(CAMERAS, envlogger.Video())
    with envlogger.StreamRecorder(arguments.output, video=video) as recorder:
        threads = [threading.Thread(target=run, args=(recorder, name, done)) for name in DEVICES]
        for thread in threads:
            thread.start()
        with recorder.episode():
            time.sleep(arguments.seconds)
        done.set()
        for thread in threads:
            thread.join()
    episodes = rlds.sources.open(arguments.output, rate=20, policy="linear", max_age=0.1)
    for episode in episodes:
        state = episode.steps["observation"]["state"]
        print(f"{episode.key}: {episode.num_steps} steps at 20 Hz, state {state.shape}")
    print(f"next: rlds convert {arguments.output} robot --to lerobot -O rate=30 -T codec=h264")


if __name__ == "__main__":
    main()
