"""Contenders that make a new dataset of one: without every tenth episode, or with video.

Ours compare what they wrote with what was there. Peers are lerobot, and recording anew.
"""

import itertools
from pathlib import Path
from unittest import mock

import numpy as np
from worker import Work

EPISODE = 100  # Steps.
CAMERAS = ("observation.images.top", "observation.images.side")


def write_lerobot(folder: Path, size: int, *, zoom: int) -> None:
    """Writes a dataset with two cameras of 40 x 30 times `zoom`, in AV1 as LeRobot encodes it."""
    import raw_lerobot as raw

    scene = np.random.default_rng(0).integers(0, 200, (30, 40, 3))
    scene = np.kron(scene, np.ones((zoom, zoom, 1), int)).astype(np.uint8)

    def frames(video: str, index: int, length: int) -> np.ndarray:
        return np.stack([np.roll(scene, 3 * index + step, 1) + step % 50 for step in range(length)])

    video_info = {
        **raw.VIDEOS[raw.TOP],
        "shape": [*scene.shape],
        "names": ["height", "width", "channels"],
    }
    num_episodes = size // EPISODE
    features = {name: raw.FEATURES[name] for name in ("action", raw.STATE, *raw._SCALARS)}
    with mock.patch.multiple(raw, frames=frames, VIDEOS=dict.fromkeys(CAMERAS, video_info)):
        raw.write_v3(
            folder / "data",
            lengths=(EPISODE,) * num_episodes,
            files=(tuple(range(num_episodes)),),
            features=features,
            columns_of=lambda lengths: [
                {name: episode[name] for name in features} for episode in raw.episodes(lengths)
            ],
            codecs=dict.fromkeys(CAMERAS, "av1"),
        )


def write_pictures(folder: Path, size: int) -> None:
    """Writes episodes with the pictures of two cameras of 320 x 240, as arrays in `.npz` files."""
    rng = np.random.default_rng(0)
    scene = np.kron(rng.integers(0, 200, (30, 40, 3)), np.ones((8, 8, 1), int)).astype(np.uint8)
    for index in range(size // EPISODE):
        cameras = {
            f"observation/{name}": np.stack(
                [np.roll(scene, 3 * index + row, axis) + row % 50 for row in range(EPISODE)]
            )
            for axis, name in enumerate(("side", "top"))
        }
        action = rng.random((EPISODE, 7), np.float32)
        np.savez(folder / f"episode_{index:04}.npz", action=action, **cameras)


def convert_to_lerobot(data: Path, size: int) -> Work:
    """Makes a LeRobot dataset with video of them, and compares it with them."""
    import rlds.sources

    def work(folder: Path) -> int:
        exported = rlds.sources.export(data, "lerobot", folder / "made", fps=30, codec="av1")
        return exported.num_episodes * EPISODE

    return work


def delete_from_lerobot(data: Path, size: int) -> Work:
    """Deletes with `rlds.edit`, which copies packets and rows, and compares them."""
    import rlds
    from rlds.editing import Delete

    def work(folder: Path) -> int:
        episodes = list(range(0, size // EPISODE, 10))
        edited = rlds.edit(data / "data", Delete(episodes=episodes), to=folder / "made")
        return edited.num_episodes * EPISODE

    return work


def delete_by_lerobot(data: Path, size: int) -> Work:
    """Deletes with lerobot, which decodes the frames that stay and encodes them again."""
    from lerobot.datasets.dataset_tools import delete_episodes
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    def work(folder: Path) -> int:
        dataset = LeRobotDataset("a/b", root=data / "data", video_backend="pyav")
        deleted = list(range(0, dataset.num_episodes, 10))
        edited = delete_episodes(dataset, deleted, output_dir=folder / "made", repo_id="a/c")
        return edited.num_frames

    return work


def delete_from_log(data: Path, size: int, *, kind: str) -> Work:
    """Deletes with `rlds.edit`, which reads back what it has copied."""
    import recording_jobs

    import rlds
    from rlds.editing import Delete

    log = data / "log"
    recording_jobs.record(data, size, kind=kind)(log)
    episodes = list(range(0, size // recording_jobs.EPISODE_LENGTH, 10))

    def work(folder: Path) -> int:
        edited = rlds.edit(log, Delete(episodes=episodes), to=folder / "made")
        assert edited.num_episodes == edited.num_original - len(episodes)
        return size

    return work


def record_anew(data: Path, size: int, *, kind: str) -> Work:
    """Reads all episodes, and records all but every tenth."""
    import recording_jobs

    import envlogger
    from envlogger.backends import riegeli_backend_writer

    log = data / "log"
    recording_jobs.record(data, size, kind=kind)(log)

    def work(folder: Path) -> int:
        (folder / "made").mkdir()  # The published one makes none.
        writer = riegeli_backend_writer.RiegeliBackendWriter(str(folder / "made"))
        reader = envlogger.Reader(str(log))
        for index, episode in enumerate(reader.episodes):
            for row, step in enumerate(episode if index % 10 else ()):
                writer.record_step(step, is_new_episode=row == 0)
        writer.close()
        return size

    return work


def delete_from_dataset(data: Path, size: int) -> Work:
    """Deletes from a dataset of TFDS with `rlds.edit`, which compares the copies."""
    import rlds
    from rlds.editing import Delete

    num_episodes = len(rlds.sources.open(data))
    episodes = list(range(0, num_episodes, 10))

    def work(folder: Path) -> int:
        edited = rlds.edit(data, Delete(episodes=episodes), to=folder / "made")
        assert edited.num_episodes == num_episodes - len(episodes)
        return size

    return work


def write_ten(folder: Path, size: int) -> None:
    """Writes ten datasets of TFDS."""
    import dataset_jobs  # Which the Python of lerobot need not be able to.

    for index in range(10):
        dataset_jobs.make_dataset(folder / f"{index}", size // 10)


def merge(data: Path, size: int) -> Work:
    """Merges ten datasets of TFDS with `rlds.edit`, which compares the copies."""
    import rlds
    from rlds.editing import Merge

    def work(folder: Path) -> int:
        first, *additional = (data / f"{index}" for index in range(10))
        merged = rlds.edit(first, Merge(additional), to=folder / "made")
        assert merged.num_episodes == 10 * len(rlds.sources.open(first))
        return size

    return work


def write_anew_by_tfds(data: Path, size: int, *, num_parts: int = 0) -> Work:
    """Reads episodes with TFDS, and writes all except every tenth; or all of several datasets."""
    import tensorflow_datasets as tfds

    folders = [data / f"{index}" for index in range(num_parts)] or [data]
    olds = [tfds.builder_from_directory(str(folder)) for folder in folders]
    old = olds[0]

    def work(folder: Path) -> int:
        identity = tfds.core.dataset_info.DatasetIdentity(
            name="bench", version=tfds.core.Version("0.0.1"), data_dir=str(folder), module_name=""
        )
        info = tfds.core.DatasetInfo(builder=identity, features=old.info.features)
        writer = tfds.core.SequentialWriter(info, 1000)
        writer.initialize_splits(["train"])
        read = (tfds.as_numpy(each.as_dataset(split="train")) for each in olds)
        for index, episode in enumerate(itertools.chain.from_iterable(read)):
            if index % 10 or num_parts:
                writer.add_examples({"train": [{**episode, "steps": list(episode["steps"])}]})
        writer.close_all()
        return size

    return work
