"""Columns of sidecars equal those of their episodes."""

import pickle

import numpy as np
import pytest

from rlds.alignment import from_sars
from rlds.sources import Field, Origin, SourceEpisode
from rlds.sources.sidecar import Sidecar, SidecarWriter, StoredSidecar
from rlds.sources.source import DERIVED_DISCOUNT
from rlds.sources.testing import differences
from tfds_files.columns import stack

STEPS = {
    "x": Field(np.float32, (2,)),
    "ragged": Field(np.int16, (None, 2)),
    "words": Field(str, (2,)),
    "image": Field(np.uint8, (2, 2, 3), encoding="png"),
    "none": Field(np.float64, (0,)),
    "discount": DERIVED_DISCOUNT,
}
EPISODE = {"seed": Field(np.int64), "tags": Field(str, (None,)), "goal": Field(np.complex64, (3,))}
SIDECAR = Sidecar(STEPS, EPISODE, {"x": "x"})


def make_episode(index, length, *, is_final_known=True):
    """Returns an episode whose values contain its index."""
    rows, terminal = length + is_final_known, index % 2 == 0
    ragged = stack([np.full((row % 3, 2), index, np.int16) for row in range(rows)])
    png = b"\x89PNG\r\n\x1a\n"
    steps = from_sars(
        observation=np.arange(rows), action=np.zeros(length), reward=None, terminal=terminal
    )
    del steps["observation"], steps["action"]
    steps |= {
        "x": np.full((rows, 2), index, np.float32),
        "ragged": ragged,
        "words": np.array([[f"ü{row}", "\0"] for row in range(rows)], object),
        "image": np.array([*(png + bytes([row]) for row in range(rows)), None], object)[:-1],
        "none": np.zeros((rows, 0)),
    }
    tags = np.array(["a"] * index, object)
    metadata = {"seed": np.int64(index), "tags": tags, "goal": np.full(3, 1j * index, "c8")}
    origin = Origin(f"file {index}", index, index + length)
    return SourceEpisode(
        f"key {index}", steps, origin, not terminal, is_final_known, metadata=metadata
    )


def make_odd_episode():
    """Returns an episode whose flags and discounts do not follow from its end."""
    episode = make_episode(4, 3)
    episode.steps["is_terminal"][1] = True
    episode.steps["discount"][0] = 0.5
    return episode


@pytest.fixture
def episodes():
    return [
        make_episode(0, 3),
        make_episode(1, 1, is_final_known=False),
        make_episode(2, 2, is_final_known=False),
        make_episode(3, 5),
        make_odd_episode(),
    ]


def check_stored(directory, episodes):
    stored = StoredSidecar.in_folder(directory)
    assert stored is not None
    for index, episode in enumerate(episodes):
        rows = episode.num_steps - episode.final_observation_known
        restored = stored.sidecar.unpack(
            stored.read("train", index), {"x": episode.steps["x"][:rows]}
        )
        assert not [*differences(episode, restored)]
        assert restored.origin == episode.origin
        restored.steps["x"][:] = 0  # The columns are copies.
        assert stored.key("train", index) == episode.key
    summaries = pickle.loads(pickle.dumps(stored)).summaries("train")
    assert [*zip(*(column.tolist() for column in summaries))] == [e.summary for e in episodes]


def test_episodes_survive_a_round_trip(episodes, tmp_path):
    with SidecarWriter.in_folder(tmp_path, SIDECAR) as sidecar:
        for episode in episodes:
            sidecar.add(episode)
    check_stored(tmp_path, episodes)
    # Discounts take space only if they do not follow from the flags.
    rows = sum(episode.num_steps for episode in episodes)
    [data_file] = (tmp_path / ".rlds/columns").glob("*-discount.data")
    assert data_file.stat().st_size == 4 * episodes[-1].num_steps < 4 * rows


def test_rows_are_copied_from_one_sidecar_to_another(episodes, tmp_path):
    def write(name, indices, add):
        with SidecarWriter.in_folder(tmp_path / name, SIDECAR) as sidecar:
            for index in indices:
                add(sidecar, index)

    write("one", range(len(episodes)), lambda sidecar, index: sidecar.add(episodes[index]))
    stored = StoredSidecar.in_folder(tmp_path / "one")
    order = [4, 1, 2, 3, 0, *range(len(episodes))]
    write("rows", order, lambda sidecar, index: sidecar.add_row(stored.read("train", index)))
    check_stored(tmp_path / "rows", [episodes[index] for index in order])
    write("copy", order, lambda sidecar, index: sidecar.copy(stored, "train", index))
    rows, copy = (sorted((tmp_path / name / ".rlds").rglob("*.*")) for name in ("rows", "copy"))
    assert [file.read_bytes() for file in rows] == [file.read_bytes() for file in copy]


def test_episodes_are_restored_from_their_sidecar_rows(episodes):
    for episode in episodes:
        actual = SIDECAR.unpack(SIDECAR.pack(episode), {"x": episode.steps["x"]})
        assert not [*differences(episode, actual)]


def test_values_that_do_not_match_their_fields_are_refused(tmp_path):
    episode = make_episode(0, 3)
    episode.steps["ragged"][1] = np.zeros(2, np.int16)  # One of four rows.
    with pytest.raises(ValueError, match=r"a value of shape \(2,\), expected \(None, 2\)"):
        SIDECAR.pack(episode)
    with pytest.raises(ValueError, match="expected version 2 of a sidecar; update rlds"):
        Sidecar.from_json(SIDECAR.to_json().replace('"version": 2', '"version": 3'))
