"""Small files in the layouts of RL Unplugged: `tf.train.Example`s in TFRecord files.

The functions for products return raw episodes, fields by name; `write_files` writes them. Odd
things that the published files have, or may have, are in them: a discount of 0.5, terminal and
truncated episodes, rewards beyond what is clipped, ids that come twice, a last action that is none.
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
    """Deals episodes out to files, the first ones to the first, and returns the files."""
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for index, dealt in enumerate(np.array_split(np.arange(len(episodes)), num_files)):
        file = directory / f"{prefix}-{index:05d}-of-{num_files:05d}"
        options = tf.io.TFRecordOptions(compression_type=compression)
        with tf.io.TFRecordWriter(str(file), options) as writer:
            for i in dealt:
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
    """Episodes of `atari_episodes_ordered`; every second one is terminal, the last id comes twice.

    Their rows are transitions, and the first reward is none.
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
    number: int = 4,
    rows: int = 5,
    *,
    order: str = "sar",
    shape: tuple[int, int] = (72, 96),
    rewards: bool = True,
    seed: int = 0,
) -> list[Episode]:
    """Episodes of DMLab: of one length, their images in BGR, no last action in the first row."""
    rng = np.random.default_rng(seed)
    episodes = []
    for index in range(number):
        actions = rng.integers(0, 15, rows)
        reward = rng.integers(0, 5, rows).astype(np.float32) * rewards
        # Where the transition from the first row has its reward, and that into the last its
        # discount.
        reward[-1 if order == "sar" else 0] = 0.0
        end = -2 if order == "sar" else -1
        last_action = np.zeros((rows, 15), np.float32)
        last_action[np.arange(1, rows), actions[:-1]] = 1.0
        observed = np.concatenate([[0.0], reward[:-1]]) if order == "sar" else reward
        rgb = rng.integers(0, 256, (rows, *shape, 3), np.uint8)
        episodes.append(
            {
                "episode_id": np.array([100 + index], np.int64),
                "start_idx": np.array([0], np.int64),
                "episode_return": np.array([reward.sum()], np.float32),
                "observations_pixels": [
                    tf.io.encode_png(image[..., ::-1]).numpy() for image in rgb
                ],
                "observations_reward": observed.astype(np.float32),
                "observations_action": last_action,
                "actions": actions,
                "rewards": reward,
                "discounted_rewards": (reward * np.float32(0.997)).astype(np.float32),
                "discounts": discounts(rows, terminal=index % 2 == 0, end=end),
            }
        )
    return episodes


def rwrl_episodes(number: int = 4, rows: int = 5, seed: int = 0) -> list[Episode]:
    """Episodes of RWRL: all floats, the action in a row led to its observation.

    The first discount is 0, whatever the end is.
    """
    rng = np.random.default_rng(seed)
    episodes = []
    for index in range(number):
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
    """Episodes of locomotion: as of the control suite, with a camera of raw values."""
    rng = np.random.default_rng(seed)
    episodes = control_suite_episodes(lengths, seed=seed)
    for episode, rows in zip(episodes, lengths):
        for name in ("position", "height"):
            episode[f"observation/walker/{name}"] = episode.pop(f"observation/{name}")
        images = rng.integers(0, 256, (rows, *camera), np.uint8)
        episode["observation/walker/egocentric_camera"] = [image.tobytes() for image in images]
    return episodes


def step_types(rows: int) -> np.ndarray:
    """What `dm_env` says of each row, as floats."""
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
