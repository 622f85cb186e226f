"""Random episodes in both layouts, and comparisons of results."""

import os
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tree
from hypothesis import Phase, settings
from hypothesis import strategies as st

from rlds.transformations import _sections

Columns = dict[str, Any]

# Each example traces graphs, which is slow: so there are few examples, and failures do not shrink.
few_examples = settings(
    max_examples=int(os.environ.get("FEW_EXAMPLES", "2")),
    phases=[Phase.explicit, Phase.generate],
)


def episode_columns(length: int, *, terminal: bool = True, seed: int = 0) -> Columns:
    """The steps of an episode: numbers, a text and flags, with a leading time axis."""
    rng = np.random.default_rng(seed)
    index = np.arange(length)
    is_last = index == length - 1
    is_terminal = is_last & terminal
    discount = rng.choice([0.5, 0.9, 1.0], size=length).astype(np.float32)
    discount[index == length - 2] *= not terminal
    return {
        "observation": {
            "state": rng.normal(size=(length, 2)).astype(np.float32),
            "text": np.array([b"step %d" % i for i in index], dtype="S7"),
        },
        "action": rng.normal(size=(length, 3)).astype(np.float32),
        "reward": rng.integers(-9, 9, size=length).astype(np.float32),
        "discount": discount,
        "is_first": index == 0,
        "is_last": is_last,
        "is_terminal": is_terminal,
        "instruction": np.array([b"go"] * length, dtype="S2"),
    }


@st.composite
def datasets(draw: st.DrawFn, min_length: int = 0, max_length: int = 7) -> list[Columns]:
    """The steps of several random episodes."""
    lengths = draw(st.permutations(range(min_length, max_length + 1)))
    terminal = draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths)))
    seed = draw(st.integers(0, 2**31))
    return [
        episode_columns(length, terminal=is_terminal, seed=seed + length)
        for length, is_terminal in zip(lengths, terminal)
    ]


def in_both_layouts(
    *all_columns: Columns, **metadata: list[Any]
) -> tuple[tf.data.Dataset, tf.data.Dataset]:
    """Two datasets of the same episodes: with nested steps, and with batched ones."""
    batched = None
    for i, columns in enumerate(all_columns):
        episode_metadata = {name: values[i] for name, values in metadata.items()}
        episode = tf.data.Dataset.from_tensors({"steps": columns, **episode_metadata, "id": i})
        batched = episode if batched is None else batched.concatenate(episode)
    nested = batched.map(
        lambda episode: {**episode, "steps": tf.data.Dataset.from_tensor_slices(episode["steps"])}
    )
    return nested, batched


def as_columns(steps: Any) -> Columns:
    """The steps as NumPy arrays with a leading time axis."""
    if not isinstance(steps, tf.data.Dataset):
        return tf.nest.map_structure(lambda leaf: np.asarray(tf.convert_to_tensor(leaf)), steps)
    as_list = [tf.nest.map_structure(np.asarray, step) for step in steps]
    if as_list:
        return tree.map_structure(lambda *leaves: np.stack(leaves), *as_list)
    return tf.nest.map_structure(
        lambda leaf: np.zeros([0, *(dim or 0 for dim in leaf.shape)], leaf.dtype.as_numpy_dtype),
        steps.element_spec,
    )


def assert_equal(actual: Any, expected: Any) -> None:
    """Compares steps of any layout, or other values, to the dtype."""
    actual, expected = as_columns(actual), as_columns(expected)
    tree.assert_same_structure(actual, expected)
    for (path, a), b in zip(tree.flatten_with_path(actual), tree.flatten(expected)):
        assert a.shape == b.shape, path
        assert a.dtype.kind == b.dtype.kind, path
        np.testing.assert_array_equal(a, b, err_msg=str(path))


def assert_same_episodes(nested: tf.data.Dataset, batched: tf.data.Dataset) -> None:
    """Compares episodes with nested steps to those with batched ones."""
    for a, b in zip(nested, batched, strict=True):
        assert a.keys() == b.keys()
        assert isinstance(a["steps"], tf.data.Dataset)
        assert isinstance(b["steps"], dict)
        cardinality = int(a["steps"].cardinality())
        columns = as_columns(a["steps"])
        assert cardinality in (-2, len(tree.flatten(columns)[0]))
        for key in a:
            assert_equal(columns if key == "steps" else a[key], b[key])


def rest_after_restoring(
    dataset: tf.data.Dataset, num_taken: int, folder: Any
) -> tuple[list, list]:
    """Returns the elements after the first ones, of the iterator and of a restored one."""
    iterator = iter(dataset)
    for _ in range(num_taken):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(folder / "checkpoint"))
    expected = [tf.nest.map_structure(np.asarray, element) for element in iterator]
    restored = iter(dataset)
    tf.train.Checkpoint(iterator=restored).read(path).assert_consumed()
    return expected, [tf.nest.map_structure(np.asarray, element) for element in restored]


def pass_in_sections(patch: pytest.MonkeyPatch, size: int) -> None:
    """Makes nested steps pass in sections of `size` bytes."""
    patch.setattr(_sections, "_SECTION_SIZE_IN_BYTES", size)
