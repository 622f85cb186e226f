"""Small episodes are converted in groups; nobody can tell from the result."""

import dataclasses

import conversions
import numpy as np
import pytest
import tensorflow_datasets as tfds
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from toy_source import ToySource

from rlds import from_sars
from rlds.sources import DamagedEpisode, Origin, SourceEpisode, SourceError
from rlds.sources.source import StoredEpisode
from tfds_builders import convert
from tfds_builders.conversion import episode_groups
from tfds_builders.conversion.encoder import EpisodeEncoder
from tfds_builders.conversion.episode_groups import in_groups

FEATURES = tfds.features.FeaturesDict(
    {
        "steps": tfds.features.Dataset(
            {
                "observation": {"x": np.float32, "text": tfds.features.Text()},
                "action": np.int64,
                "reward": np.float32,
                "discount": np.float32,
                "is_first": np.bool_,
                "is_last": np.bool_,
                "is_terminal": np.bool_,
            }
        ),
        "episode_id": tfds.features.Text(),
        "final_observation_known": np.bool_,
        "truncated": np.bool_,
        "complete": np.bool_,
        "source": {"file": tfds.features.Text(), "begin": np.int64, "end": np.int64},
        "seed": np.int64,
        "note": tfds.features.Tensor(shape=(2,), dtype=np.float64, encoding="bytes"),
    }
)


@st.composite
def episodes(draw):
    """Episodes of several forms; some break a rule, or do not fit the features."""
    made = []
    for index in range(draw(st.integers(1, 6))):
        length = draw(st.integers(1, 3))
        text = np.array(draw(st.lists(st.text() | st.binary(), min_size=4, max_size=4)), object)
        dtype = draw(st.sampled_from([np.float32, np.float32, np.float64]))
        steps = from_sars(
            observation={
                "x": draw(npst.arrays(np.float32, length + 1)).astype(dtype),
                "text": text[: length + 1],
            },
            action=draw(npst.arrays(np.int64, length)),
            reward=np.full(length, draw(st.sampled_from([0.5, 0.5, 0.5, np.nan])), np.float32),
            terminal=draw(st.booleans()),
        )
        metadata = {"seed": draw(st.integers(-9, 2**63 - 1)), "note": np.array([index, 0.5])}
        if not draw(st.integers(0, 7)):
            del metadata["note"]
        key = str(draw(st.sampled_from([index, index, index, 0])))
        made.append(
            SourceEpisode(key, steps, Origin("raw", index, index + 1), True, metadata=metadata)
        )
    return made


def encode_one_by_one(encoder, group):
    encoded = []
    for episode in group:
        try:
            encoded.append(encoder.encode(episode))
        except SourceError as error:
            encoded.append(str(error))
    return encoded


@pytest.mark.slow
@given(episodes())
@settings(max_examples=2 * settings().max_examples)
def test_the_bytes_of_a_group_are_those_of_its_episodes(made):
    together, alone = (EpisodeEncoder(FEATURES, ("reward",)) for _ in range(2))
    for group in in_groups(made):
        expected = encode_one_by_one(alone, group)
        is_right = all(isinstance(example, bytes) for example in expected)
        found = together.encode_all(group)
        assert (found is not None) == is_right
        if found is None:
            found = encode_one_by_one(together, group)
        assert found == expected


@given(st.lists(st.sampled_from("abcdDsX"), max_size=12), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_groups_are_of_one_form_and_bounded(forms, most):
    def make(index, form):
        if form == "D":
            return DamagedEpisode(str(index), SourceError("torn", file="raw"))
        if form == "s":
            return StoredEpisode(str(index), b"x" * 10)
        columns = {"is_first": np.ones(1, bool), "x": np.zeros((1, ord(form)), np.uint8)}
        if form == "X":
            columns["x"] = [1]  # No column that is known here.
        return SourceEpisode(str(index), columns, Origin("raw", 0, 1), True)

    made = [make(*item) for item in enumerate(forms)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(episode_groups, "_MAX_EPISODES", most)
        patch.setattr(episode_groups, "_MAX_BYTES", 300)
        groups = list(in_groups(made))
    assert [episode.key for group in groups for episode in group] == [e.key for e in made]
    for group in groups:
        members = {forms[int(episode.key)] for episode in group}
        assert len(members) == 1
        sizes = {"D": 300, "X": 300, "s": 10} | {form: 1 + ord(form) for form in "abcd"}
        limit = min(most, 300 // sizes[members.pop()])
        assert 1 <= len(group) <= limit


def test_a_group_does_not_wait(monkeypatch):
    """Episodes that come slowly are kept when the next one comes."""
    now = [0.0]
    monkeypatch.setattr(episode_groups.time, "monotonic", lambda: now[0])

    def slowly():
        for index, seconds in enumerate([0.0, 0.05, 0.06, 5.0]):
            now[0] += seconds
            yield StoredEpisode(str(index), b"")

    assert [len(group) for group in in_groups(slowly())] == [2, 1, 1]


def test_what_was_read_before_an_interruption_is_kept():
    def interrupted():
        yield StoredEpisode("a", b"")
        raise conversions.Interrupted

    groups = in_groups(interrupted())
    assert [episode.key for episode in next(groups)] == ["a"]
    with pytest.raises(conversions.Interrupted):
        next(groups)


class Mixed(ToySource):
    """Some episodes break a rule, others have metadata of another type."""

    episodes_per_part = 20

    def read(self, split, index, fields=None, rows=slice(None)):
        episode = super().read(split, index)
        if index % 7 == 3:
            episode.steps["reward"][0] = np.nan
        if index % 7 == 5:
            return dataclasses.replace(episode, metadata={"seed": np.int32(index)})
        return episode

    def totals(self, split):
        return {}


@pytest.mark.slow
def test_a_dataset_does_not_depend_on_groups(tmp_path, monkeypatch):
    raw = tmp_path / "toy.raw"
    raw.write_text("toy")

    def made(name):
        source = Mixed(raw, 33, damaged=8)
        source.finite_fields = ("reward",)
        with pytest.warns(UserWarning, match="damaged episodes were left out"):
            builder = convert(source, name="toy", data_dir=tmp_path / name, skip_damaged=True)
        return conversions.contents(builder.data_path)

    in_groups_of_many = made("many")
    monkeypatch.setattr(episode_groups, "_MAX_EPISODES", 1)
    assert made("one") == in_groups_of_many
