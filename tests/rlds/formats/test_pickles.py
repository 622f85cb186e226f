"""Pickled sources do not contain the values that they have read."""

import pickle

import hostile_sources
import pytest

import rlds.sources


@pytest.mark.parametrize("name", hostile_sources.NAMES)
def test_pickles_do_not_grow_if_episodes_are_read(name, tmp_path):
    path = hostile_sources.write_raw(name, tmp_path)
    episodes = rlds.sources.open(path, "all", **hostile_sources.OPTIONS.get(name, {}))
    size = len(pickle.dumps(episodes))
    for _ in range(2):
        list(episodes)
    assert len(pickle.dumps(episodes)) < size + 700  # Digests and lengths may be pickled.
