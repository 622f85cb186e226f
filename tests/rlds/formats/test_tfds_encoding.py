"""Small episodes are encoded in groups, to the same bytes as one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from toy_source import ToySource

from rlds.alignment import from_sars
from rlds.formats.tfds import episode_groups
from rlds.formats.tfds.encoding import EpisodeEncoder
from rlds.formats.tfds.episode_groups import in_groups
from rlds.formats.tfds.features import features_of
from rlds.sources import Field
from rlds.sources.source import Fields, Origin, SourceEpisode, SourceError
from tfds_files import ExampleEncoder


class Declared(ToySource):
    """A source with declared fields."""

    fields = Fields(
        {
            "observation": {"x": np.float32, "text": Field(str)},
            "action": np.int64,
            "reward": np.float32,
            "discount": np.float32,
        },
        {"seed": np.int64, "note": Field(np.float64, (2,))},
    )


@st.composite
def episodes(draw):
    """Episodes of several forms; some break a rule, or do not fit the features."""
    drawn = []
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
        drawn.append(
            SourceEpisode(key, steps, Origin("raw", index, index + 1), True, metadata=metadata)
        )
    return drawn


def encode_one_by_one(encoder, group):
    encoded = []
    for episode in group:
        try:
            encoded.append(encoder.encode(episode).example)
        except SourceError as error:
            encoded.append(str(error))
    return encoded


@pytest.mark.slow
@given(episodes())
@settings(max_examples=2 * settings().max_examples)
def test_groups_have_the_bytes_of_their_episodes(drawn):
    features = features_of(Declared("raw"))
    grouped, single = (EpisodeEncoder(ExampleEncoder(features), ("reward",)) for _ in range(2))
    for numbered in in_groups(enumerate(drawn)):
        group = [episode for _, episode in numbered]
        expected = encode_one_by_one(single, group)
        is_valid = all(isinstance(example, bytes) for example in expected)
        actual = grouped.encode_all(group)
        assert (actual is not None) == (is_valid and len(group) > 1)
        actual = actual and [each.example for each in actual]
        if actual is None:
            actual = encode_one_by_one(grouped, group)
        assert actual == expected


@given(st.lists(st.sampled_from("abcdX"), max_size=12), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_groups_are_of_one_form_and_bounded(forms, max_episodes):
    def make(index, form):
        columns = {"is_first": np.ones(1, bool), "x": np.zeros((1, ord(form)), np.uint8)}
        if form == "X":
            columns["x"] = [1]  # An unsupported column.
        return SourceEpisode(str(index), columns, Origin("raw", 0, 1), True)

    numbered_episodes = [make(*item) for item in enumerate(forms)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(episode_groups, "_MAX_GROUP_EPISODES", max_episodes)
        patch.setattr(episode_groups, "_MAX_GROUP_BYTES", 300)
        groups = list(in_groups(enumerate(numbered_episodes)))
    assert [episode for group in groups for _, episode in group] == numbered_episodes
    for group in groups:
        members = {forms[index] for index, _ in group}
        assert len(members) == 1
        size = {"X": 300} | {form: 1 + ord(form) for form in "abcd"}
        assert 1 <= len(group) <= min(max_episodes, 300 // size[members.pop()])
