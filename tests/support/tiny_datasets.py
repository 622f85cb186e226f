"""Small datasets of TFDS, written without it."""

import numpy as np

import tfds_files


def episode(length, *, seed=0, **fields):
    """An episode for `dataset`."""
    rng = np.random.default_rng(seed)
    flags = {name: np.zeros(length, bool) for name in ("is_first", "is_last", "is_terminal")}
    flags["is_first"][0] = flags["is_last"][-1] = flags["is_terminal"][-1] = True
    return {
        "episode_id": f"episode {seed}",
        "steps": {
            "observation": {
                "position": rng.normal(size=(length, 3)).astype(np.float32),
                "camera": rng.integers(0, 255, (length, 8, 8, 3), np.uint8),
            },
            "action": rng.integers(0, 4, length),
            "reward": rng.normal(size=length).astype(np.float32),
            "discount": np.ones(length, np.float32),
            **flags,
            **fields,
        },
    }


def write_dataset(directory, episodes, name="tiny"):
    """A dataset of TFDS with the fields of `episode`."""

    def tensor(dtype, *shape):
        return tfds_files.Tensor(dtype=np.dtype(dtype), shape=shape)

    camera = tfds_files.Image(shape=(8, 8, 3), dtype=np.dtype(np.uint8), encoding_format="png")
    observation = {"position": tensor(np.float32, 3), "camera": camera}
    step = {
        "observation": tfds_files.Features(features=observation),
        "action": tfds_files.Tensor(dtype=np.dtype(np.int64), doc="Which way to go. Or none."),
        **dict.fromkeys(("reward", "discount"), tensor(np.float32)),
        **dict.fromkeys(("is_first", "is_last", "is_terminal"), tensor(bool)),
    }
    features = tfds_files.Features(
        features={
            "steps": tfds_files.Dataset(feature=tfds_files.Features(features=step)),
            "episode_id": tensor(object),
        }
    )
    with tfds_files.append_to(directory, features, name) as writer:
        for content in episodes:
            writer.add(content)
    return str(directory)
