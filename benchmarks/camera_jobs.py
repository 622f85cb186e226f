"""Contenders that record cameras as video: at 30 steps a second, as a robot is; or pictures.

They say how long a step and the end of an episode took, how large a step is, and how much of the
luma is kept.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from worker import Work

EPISODE, RATE = 100, 30  # Steps, and steps a second.
CAMERAS = ("top", "side")


def write_cameras(folder: Path, size: int) -> None:
    """Writes what two cameras and the joints of an arm give, for those that cannot make it."""
    import recording_jobs

    seen = recording_jobs.observations("cameras")
    columns = {f"observation/images/{name}": np.stack([s[name] for s in seen]) for name in CAMERAS}
    joints = np.stack([s["joints"] for s in seen])
    np.savez(folder / "0", **columns, **{"observation/state": joints, "action": joints[:, :6]})


def record_video(data: Path, size: int, *, lerobot: bool, lossless: bool = False) -> Work:
    """Records two cameras: to a log, or to a LeRobot dataset."""
    import recording_jobs

    import envlogger
    from rlds.recording import LeRobotBackendWriter

    video = dict.fromkeys(CAMERAS, envlogger.Video(lossless=lossless))
    seen = recording_jobs.observations("cameras")
    backend_options = (
        {"backend": LeRobotBackendWriter, "fps": RATE, "task": "turn"} if lerobot else {}
    )

    def work(folder: Path) -> tuple[int, dict[str, float]]:
        arm, action = recording_jobs.Environment(seen, EPISODE - 1), np.zeros(6, np.float32)
        target = str(folder / "made")
        with envlogger.EnvLogger(arm, data_directory=target, video=video, **backend_options) as env:
            step = lambda n: env.step(action) if n % EPISODE else env.reset()  # noqa: E731
            metrics = _paced(size, step, env.flush, RATE)
        return size, metrics | _size_and_quality(folder, seen[:EPISODE], size)

    return work


def record_by_lerobot(data: Path, size: int, *, rate: float = RATE) -> Work:
    """Records what is in files as lerobot's own loop does, and encodes each frame as it comes."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    seen: list[dict[str, np.ndarray]] = []
    for file in sorted(data.glob("*.npz")):
        columns = {name.replace("/", "."): values for name, values in np.load(file).items()}
        seen += [dict(zip(columns, values)) for values in zip(*columns.values())]
    features = {
        name: {"dtype": "video", "shape": value.shape, "names": ["height", "width", "channels"]}
        if value.ndim == 3
        else {"dtype": "float32", "shape": value.shape, "names": None}
        for name, value in seen[0].items()
    }
    # No frame is dropped.
    options = {"streaming_encoding": True, "encoder_queue_maxsize": 2 * EPISODE}

    def work(folder: Path) -> tuple[int, dict[str, float]]:
        dataset = LeRobotDataset.create("a/b", RATE, features, root=folder / "made", **options)
        add = lambda n: dataset.add_frame({**seen[n % len(seen)], "task": "turn"})  # noqa: E731
        metrics = _paced(size, add, dataset.save_episode, rate)
        dataset.finalize()
        return size, metrics | _size_and_quality(folder, seen[:EPISODE], size)

    return work


def _paced(
    size: int, step: Callable[[int], Any], end: Callable[[], None], rate: float
) -> dict[str, float]:
    """Takes steps when they are due, and ends each episode."""
    waits, ends, due = [], [], time.perf_counter()
    for index in range(size):
        time.sleep(max(0.0, due - time.perf_counter()))
        begin = time.perf_counter()
        step(index)
        waits.append(time.perf_counter() - begin)
        due += 1 / rate
        if index % EPISODE == EPISODE - 1:
            begin = time.perf_counter()
            end()
            ends.append(time.perf_counter() - begin)
            due = time.perf_counter()
    p50, p99 = np.quantile(waits, (0.5, 0.99))
    quantiles = {"step, p50": p50, "step, p99": p99, "end of an episode": statistics.median(ends)}
    return {f"ms ({name})": 1000 * float(seconds) for name, seconds in quantiles.items()}


def _size_and_quality(
    folder: Path, seen: list[dict[str, np.ndarray]], size: int
) -> dict[str, float]:
    """Returns the bytes per step, and the PSNR of the luma of the first episode in video files."""
    import av
    from av.video.frame import VideoFrame

    num_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    metrics = {"kB a step": num_bytes / size / 1e3}
    for name in CAMERAS:
        [key] = [key for key in seen[0] if key.endswith(name)]
        for file in sorted(folder.glob(f"made/videos/*{name}/*/*.mp4"))[:1]:
            with av.open(str(file)) as video:
                errors = [
                    np.square(_luma(frame) - _luma(VideoFrame.from_ndarray(step[key]))).mean()
                    for frame, step in zip(video.decode(video=0), seen)
                ]
            metrics[f"dB ({name})"] = float(10 * np.log10(255**2 / np.mean(errors)))
    return metrics


def _luma(frame: Any) -> np.ndarray:
    return np.asarray(frame.reformat(format="yuv420p").to_ndarray()[: frame.height], np.float64)
