"""Small datasets as d3rlpy dumps them."""

import h5py
import numpy as np

LENGTHS = {0: (4, True), 1: (6, False), 2: (1, True)}


def episode(index, *, num_arrays=0, discrete=False):
    """The columns of an episode; with `num_arrays`, observations are a list of arrays."""
    length, terminated = LENGTHS[index]
    rng = np.random.default_rng(index)
    observations = [rng.normal(size=(length, 3)).astype(np.float32) for _ in range(num_arrays or 1)]
    actions = rng.integers(0, 4, (length, 1)) if discrete else rng.random((length, 2), np.float32)
    return {
        "observations": observations if num_arrays else observations[0],
        "actions": actions,
        "rewards": rng.random((length, 1), np.float32),
        "terminated": np.bool_(terminated),
    }


def write_first_version(path, *, terminals=(3,), ends=(3, 7, 11), rows=12, discrete=False):
    """Writes a file of d3rlpy 1, with the row numbers as values; returns its path."""
    row_values = np.arange(rows, dtype=np.float32)
    with h5py.File(path, "w") as file:
        file["observations"] = np.stack([row_values, -row_values], axis=1)
        file["actions"] = np.arange(rows) % 4 if discrete else row_values[:, None] / 2
        file["rewards"] = row_values / 10
        for name, rows_of_flag in (("terminals", terminals), ("episode_terminals", ends)):
            file[name] = np.isin(np.arange(rows), rows_of_flag).astype(np.float32)
        file["discrete_action"], file["version"] = discrete, "1.0"
    return path


def write(path, **options):
    """Writes a file."""
    with h5py.File(path, "w") as file:
        columns = [*episode(0)]
        file["columns"] = columns
        file["num_episodes"] = len(LENGTHS)
        for index in LENGTHS:
            for name, values in episode(index, **options).items():
                if isinstance(values, list):
                    for position, value in enumerate(values):
                        file[f"{name}_{index}_{position}"] = value
                else:
                    file[f"{name}_{index}"] = values
        file["version"] = "2.1"
    return path
