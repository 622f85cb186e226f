"""Small files in the layouts of RL Unplugged: `tf.train.Example`s in TFRecord files.

The functions for products return raw episodes or windows, with fields by name; `write_files` writes
them. They have oddities of published files: a discount of 0.5, terminal and truncated episodes,
rewards beyond the clipping range, duplicate ids, an invalid last action, windows in random order,
a discount of 1 at the end.
"""

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

Episode = dict[str, Any]


def write_files(
    directory: Path,
    prefix: str,
    episodes: list[Episode],
    *,
    num_files: int = 2,
    compression: str = "GZIP",
) -> list[Path]:
    """Distributes episodes to files in their order; returns the files."""
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for index, indices in enumerate(np.array_split(np.arange(len(episodes)), num_files)):
        file = directory / f"{prefix}-{index:05d}-of-{num_files:05d}"
        options = tf.io.TFRecordOptions(compression_type=compression)
        with tf.io.TFRecordWriter(str(file), options) as writer:
            for i in indices:
                writer.write(example(episodes[i]))
        files.append(file)
    return files


def example(fields: Episode) -> bytes:
    """Returns a record with fields: lists of bytes, or arrays of float32 or int64, flattened."""
    features = {}
    for name, values in fields.items():
        if isinstance(values, list):
            feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        else:
            values = np.asarray(values)
            flat = values.ravel().tolist()
            if values.dtype == np.float32:
                feature = tf.train.Feature(float_list=tf.train.FloatList(value=flat))
            else:
                assert values.dtype == np.int64, name
                feature = tf.train.Feature(int64_list=tf.train.Int64List(value=flat))
        features[name] = feature
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def discounts(rows: int, *, terminal: bool, end: int = -1) -> np.ndarray:
    """Ones, one of them 0.5, and a zero at `end` for a terminal episode."""
    values = np.ones(rows, np.float32)
    values[rows // 2] = 0.5
    values[end] = 0.0 if terminal else 1.0
    return values


def atari_episodes(
    lengths: tuple[int, ...] = (5, 4, 6, 3), shape: tuple[int, int] = (84, 84), seed: int = 0
) -> list[Episode]:
    """Episodes of `atari_episodes_ordered`; every second is terminal, the last id a duplicate.

    Their rows are transitions; the first reward is invalid.
    """
    rng = np.random.default_rng(seed)
    episodes = []
    for index, rows in enumerate(lengths):
        rewards = rng.integers(-3, 20, rows).astype(np.float32)
        rewards[0], rewards[-1] = 0.0, 7.0
        frames = rng.integers(0, 256, (rows, *shape, 1), np.uint8)
        episodes.append(
            {
                "checkpoint_idx": np.array([7], np.int64),
                "episode_idx": np.array([min(index, len(lengths) - 2)], np.int64),
                "episode_return": np.array([rewards.sum()], np.float32),
                "clipped_episode_return": np.array([rewards.clip(-1, 1).sum()], np.float32),
                "observations": [tf.io.encode_png(frame).numpy() for frame in frames],
                "actions": rng.integers(0, 18, rows),
                "unclipped_rewards": rewards,
                "clipped_rewards": rewards.clip(-1, 1),
                "discounts": discounts(rows, terminal=index % 2 == 0),
            }
        )
    return episodes


def dmlab_episodes(
    count: int = 4,
    rows: int = 5,
    *,
    order: str = "sar",
    shape: tuple[int, int] = (72, 96),
    rewards: bool = True,
    seed: int = 0,
) -> list[Episode]:
    """Episodes of DMLab: equal lengths, images in BGR, no last action in the first row."""
    rng = np.random.default_rng(seed)
    episodes = []
    for index in range(count):
        actions = rng.integers(0, 15, rows)
        reward = rng.integers(0, 5, rows).astype(np.float32) * rewards
        # The order determines the rows of the first reward and of the last discount.
        reward[-1 if order == "sar" else 0] = 0.0
        end = -2 if order == "sar" else -1
        last_action = np.zeros((rows, 15), np.float32)
        last_action[np.arange(1, rows), actions[:-1]] = 1.0
        observed_reward = np.concatenate([[0.0], reward[:-1]]) if order == "sar" else reward
        rgb = rng.integers(0, 256, (rows, *shape, 3), np.uint8)
        episodes.append(
            {
                "episode_id": np.array([100 + index], np.int64),
                "start_idx": np.array([0], np.int64),
                "episode_return": np.array([reward.sum()], np.float32),
                "observations_pixels": [
                    tf.io.encode_png(image[..., ::-1]).numpy() for image in rgb
                ],
                "observations_reward": observed_reward.astype(np.float32),
                "observations_action": last_action,
                "actions": actions,
                "rewards": reward,
                "discounted_rewards": (reward * np.float32(0.997)).astype(np.float32),
                "discounts": discounts(rows, terminal=index % 2 == 0, end=end),
            }
        )
    return episodes


def rwrl_episodes(count: int = 4, rows: int = 5, seed: int = 0) -> list[Episode]:
    """Episodes of RWRL: all floats; the action of a row precedes its observation.

    The first discount is always 0.
    """
    rng = np.random.default_rng(seed)
    episodes = []
    for index in range(count):
        discount = discounts(rows, terminal=index % 2 == 0)
        discount[0] = 0.0
        action = rng.normal(size=(rows, 2)).astype(np.float32)
        action[0] = 0.0
        episodes.append(
            {
                "observation:position": rng.normal(size=(rows, 3)).astype(np.float32),
                "observation:sensors:height": rng.normal(size=(rows, 1)).astype(np.float32),
                "action": action,
                "reward": np.append(0.0, rng.random(rows - 1)).astype(np.float32),
                "discount": discount,
                "step_type": step_types(rows),
            }
        )
    return episodes


def control_suite_episodes(
    lengths: tuple[int, ...] = (5, 4, 6, 3), *, order: str = "rsa", seed: int = 0
) -> list[Episode]:
    """Episodes of the control suite; the last one was cut before its end."""
    rng = np.random.default_rng(seed)
    episodes = []
    for index, rows in enumerate(lengths):
        step_type = step_types(rows)
        if index == len(lengths) - 1:
            step_type[-1] = 1.0
        reward = (0.1 + rng.random(rows)).astype(np.float32)
        reward[0 if order == "rsa" else -1] = 0.0
        end = -1 if order == "rsa" else -2
        episodes.append(
            {
                "observation/position": rng.normal(size=(rows, 3)).astype(np.float32),
                "observation/height": rng.normal(size=rows).astype(np.float32),
                "action": rng.normal(size=(rows, 2)).astype(np.float32),
                "reward": reward,
                "discount": discounts(rows, terminal=index % 2 == 0, end=end),
                "step_type": step_type,
                "episodic_reward": np.array([reward.sum()], np.float32),
                "episode_id": np.array([-(2**60) + index], np.int64),
                "timestamp": np.array([1_590_000_000_000_000 + index], np.int64),
            }
        )
    return episodes


def locomotion_episodes(
    lengths: tuple[int, ...] = (5, 4), *, camera: tuple[int, int, int] = (64, 64, 3), seed: int = 0
) -> list[Episode]:
    """Episodes of locomotion: those of the control suite, with a camera of raw values."""
    rng = np.random.default_rng(seed)
    episodes = control_suite_episodes(lengths, seed=seed)
    for episode, rows in zip(episodes, lengths):
        for name in ("position", "height"):
            episode[f"observation/walker/{name}"] = episode.pop(f"observation/{name}")
        images = rng.integers(0, 256, (rows, *camera), np.uint8)
        episode["observation/walker/egocentric_camera"] = [image.tobytes() for image in images]
    return episodes


def atari_transitions(
    lengths: tuple[int, ...] = (4, 3), shape: tuple[int, int] = (84, 84), seed: int = 0
) -> list[Episode]:
    """Transitions of `atari`, of two or more episodes; every second one is terminal."""
    rng = np.random.default_rng(seed)
    transitions = []
    for index, length in enumerate(lengths):
        # A stack of four frames for each observation, and one observation after the last action.
        frames = [
            tf.io.encode_png(frame).numpy()
            for frame in rng.integers(0, 256, (length + 4, *shape, 1), np.uint8)
        ]
        actions = rng.integers(0, 18, length + 1)
        reward = rng.integers(-3, 20, length).astype(np.float32)
        discount = discounts(length, terminal=index % 2 == 0)
        transitions += [
            {
                "o_t": frames[t : t + 4],
                "o_tp1": frames[t + 1 : t + 5],
                "a_t": actions[t : t + 1],
                "a_tp1": actions[t + 1 : t + 2],
                "r_t": reward[t : t + 1],
                "d_t": discount[t : t + 1],
                "episode_id": np.array([index - 1], np.int64),  # All bits of the first one are 1.
                "episode_return": np.array([reward.clip(-1, 1).sum()], np.float32),
            }
            for t in range(length)
        ]
    return [transitions[i] for i in rng.permutation(len(transitions))]


def control_suite_windows(
    lengths: tuple[int, ...] = (5, 4), rows: int = 2, seed: int = 0
) -> list[Episode]:
    """Windows of episodes of the control suite, in the order SAR."""
    episodes = control_suite_episodes((*lengths, 2), order="sar", seed=seed)[:-1]
    return windows(episodes, rows, seed)


def locomotion_windows(
    lengths: tuple[int, ...] = (5, 4),
    rows: int = 2,
    *,
    camera: tuple[int, int, int] = (64, 64, 3),
    in_one: bool = True,
    seed: int = 0,
) -> list[Episode]:
    """Windows of locomotion: those of the control suite, with all camera rows in one string."""
    raw = control_suite_windows(lengths, rows, seed)
    rng = np.random.default_rng(seed)
    for window in raw:
        for name in ("position", "height"):
            window[f"observation/walker/{name}"] = window.pop(f"observation/{name}")
        images = rng.integers(0, 256, (len(window["reward"]), *camera), np.uint8)
        window["observation/walker/egocentric_camera"] = (
            [images.tobytes()] if in_one else [image.tobytes() for image in images]
        )
    return raw


def bsuite_windows(
    lengths: tuple[int, ...] = (5, 4), *, lacks_last: bool = False, seed: int = 0
) -> list[Episode]:
    """Windows of bsuite, with other dtypes, and a discount of 1 at the end of episodes.

    Args:
      lengths: The numbers of rows of the episodes.
      lacks_last: Whether the last row of a window has no reward and no discount.
      seed: The seed of the values.
    """
    rng = np.random.default_rng(seed)
    episodes = [
        {
            "observation": rng.normal(size=(rows, 6)).astype(np.float32),
            "action": rng.integers(0, 3, rows),
            "reward": rng.random(rows).astype(np.float32),
            "discount": discounts(rows, terminal=False),
            "step_type": step_types(rows).astype(np.int64),
            "episodic_reward": rng.random(1).astype(np.float32),
        }
        for rows in lengths
    ]
    raw = windows(episodes, 2, seed)
    for window in raw if lacks_last else ():
        for name in ("reward", "discount"):
            window[name] = window[name][:-1]
    return raw


def windows(episodes: list[Episode], rows: int, seed: int = 0) -> list[Episode]:
    """All windows of episodes, in random order; a shorter episode is one window.

    Fields of the episode have one value; ids are omitted.
    """
    all_windows = []
    for episode in episodes:
        length = len(episode["step_type"])
        for begin in range(max(1, length - rows + 1)):
            window = {
                name: values[begin : begin + rows] if len(values) == length else values
                for name, values in episode.items()
                if name not in ("episode_id", "timestamp")
            }
            all_windows.append(window)
    return [all_windows[i] for i in np.random.default_rng(seed).permutation(len(all_windows))]


def step_types(rows: int) -> np.ndarray:
    """The step types of `dm_env` of each row, as floats."""
    values = np.ones(rows, np.float32)
    values[-1] = 2.0
    values[0] = 0.0
    return values


def png_of_type(colour_type: int, depth: int = 8) -> bytes:
    """The beginning of a PNG file with a colour type."""
    header = struct.pack(">IIBBBBB", 4, 3, depth, colour_type, 0, 0, 0)
    chunk = b"IHDR" + header
    return (
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    )
