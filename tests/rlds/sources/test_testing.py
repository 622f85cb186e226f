"""The contract test for custom formats detects violations; see test_opening for real formats."""

import dataclasses

import numpy as np
import pytest
from export_options import NAMES, options_for
from robot_source import RobotSource
from toy_source import ToySource

import rlds.sources
from rlds.editing.changes import AddView, DropView, FillView, RenameView, fields_of
from rlds.editing.trimming import FlagsView, TrimView
from rlds.sources import Capabilities, Episodes, Lengths, SourceInfo, View
from rlds.sources.joined_source import JoinedSource
from rlds.sources.testing import check_export, check_source, check_view, differences
from rlds.sources.view import SelectedSource


class Changed(ToySource):
    """A source whose second episode has changed attributes or columns."""

    def __init__(self, path, **changes):
        super().__init__(path, num_episodes=3)
        self.changes = changes

    def read(self, split, index, fields=None, rows=slice(None)):
        episode = super().read(split, index)
        if index != 1:
            return episode
        attributes = {field.name for field in dataclasses.fields(episode)}
        columns = {k: v for k, v in self.changes.items() if k not in attributes}
        changed_facts = {k: v for k, v in self.changes.items() if k in attributes}
        return dataclasses.replace(episode, steps={**episode.steps, **columns}, **changed_facts)


@pytest.fixture
def broken(request, tmp_path):
    return request.param(tmp_path / "toy")


class ChangedByPickling(ToySource):
    def __init__(self, path):
        super().__init__(path, num_episodes=3)
        self.add = 0.0

    def __reduce__(self):
        return _unpickle, (type(self), self.path)

    def read(self, *arguments):
        episode = super().read(*arguments)
        episode.steps["observation"] += self.add
        return episode


def _unpickle(kind, path):
    source = kind(path)
    source.add = 1.0
    return source


class ChangedBySelection(ToySource):
    def read(self, split, index, fields=None, rows=slice(None)):
        episode = super().read(split, index)
        if fields is not None and not any("reward" in field for field in fields):
            episode.steps["action"] = episode.steps["action"] + 1
        return episode


class OffByOne(ToySource):
    capabilities = Capabilities(reads_rows=True)

    def read(self, split, index, fields=None, rows=slice(None)):
        episode = super().read(split, index)
        if rows != slice(None):
            rows = slice(rows.start + 1, rows.stop + 1)
        steps = {name: column[rows] for name, column in episode.steps.items()}
        return dataclasses.replace(episode, steps=steps)


class WrongLengths(ToySource):
    capabilities = Capabilities(
        lengths=lambda split: Lengths.create([9] * 100, final_observation_known=True)
    )


class WrongTotals(ToySource):
    capabilities = Capabilities(totals=lambda split: {"rows": 1})


class OptionsThatAreNoJson(ToySource):
    source_info = SourceInfo(options={"sizes": (1, 2)})


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda path: Changed(path, key="toy:0"), "keys: got .*, expected keys that are unique"),
        (lambda path: Changed(path, key="toy:9"), "keys: got .*, expected those of the episodes"),
        (lambda path: Changed(path, more=np.zeros(3)), "fields of steps: got .*'more'"),
        (lambda path: Changed(path, reward=np.zeros((3, 2), "f4")), "'reward'"),
        (lambda path: Changed(path, metadata={}), "seed: got nothing"),
        (lambda path: Changed(path, metadata={"seed": "x"}), "seed: got"),
        (lambda path: Changed(path, is_first=np.zeros(3, bool)), "'is_first'"),
        (lambda path: Changed(path, is_terminal=np.array([0, 0, 1], bool)), "truncated, and yet"),
        (lambda path: Changed(path, counts={"rows": 7}), "counts of 'rows': got 11, .* total: 6"),
        (ChangedByPickling, "of a pickled copy: got .*observation: values differ"),
        (ChangedBySelection, "steps 0 to 1 of 'observation'|of 'action': got values differ"),
        (OffByOne, "of 'observation': got"),
        (WrongLengths, "lengths: got"),
        (WrongTotals, "counts of 'rows'"),
        (OptionsThatAreNoJson, "options: got .* expected what JSON gives back"),
    ],
    indirect=["broken"],
)
def test_broken_promises_are_detected(broken, message):
    with pytest.raises((AssertionError, ValueError), match=message):
        check_source(broken)


@pytest.mark.parametrize("format", rlds.sources.exports())
def test_exports_keep_episodes(format, tmp_path):
    episodes = Episodes(ToySource(tmp_path, num_episodes=3))
    options = options_for(format, episodes)
    exported = check_export(format, episodes, tmp_path / NAMES.get(format, "made"), **options)
    assert exported.num_episodes == 3


def test_export_without_placement_of_a_field_is_detected(tmp_path, monkeypatch):
    kind = rlds.sources.formats()["zarr"].load_export()
    placements = kind.placements
    monkeypatch.setattr(kind, "placements", lambda self: placements(self)[1:])
    with pytest.raises(AssertionError, match=r"zarr, placements: nothing about \['steps/"):
        check_export("zarr", Episodes(ToySource(tmp_path, 3)), tmp_path / "made")


def test_differences_name_attributes_and_fields(tmp_path):
    episodes = Episodes(ToySource(tmp_path, 3))
    old, new = episodes[0], dataclasses.replace(episodes[2], key="b", metadata={})
    steps = dict(new.steps, reward=new.steps["reward"].astype("f8"))
    actual = list(differences(old, dataclasses.replace(new, steps=steps), skipped=["steps/action"]))
    assert f"key: {old.key!r} became 'b'" in actual
    assert "seed: missing" in actual
    assert "steps/reward: float32 of shape (2,) became float64 of shape (4,)" in actual
    assert not any("action" in message for message in actual)


def _halves(episode):
    return np.arange(len(episode)) / 2


VIEWS = {
    "selected": lambda source: SelectedSource(source, {"train": [2, 0, 1]}),
    "joined": lambda source: JoinedSource([Episodes(source), Episodes(source)], ["", "b/"]),
    "renamed": lambda source: RenameView(source, "steps/action", "steps/command"),
    "dropped": lambda source: DropView(source, "steps/observation/state"),
    "filled": lambda source: FillView(source, "steps/reward", 7, np.array([True, False, True])),
    "added": lambda source: AddView(source, "steps/halves", _halves, source.read("train", 0)),
    "trimmed": lambda source: TrimView(source, np.array([1, 0, 0]), np.array([4, -1, 5])),
    "flagged": lambda source: FlagsView(source, np.array([True, False, False])),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_views_give_the_same_rows_as_their_episodes(kind):
    check_view(VIEWS[kind](RobotSource()))


def _random_view(source, rng):
    """Returns a random view of a source."""
    [split] = source.splits
    count = source.num_episodes(split)
    is_chosen = rng.random(count) < 0.5
    is_named = "steps/command" in fields_of(source)
    views = [
        lambda: SelectedSource(source, {"some": rng.permutation(count)[:4]}, base_split=split),
        lambda: JoinedSource([Episodes(source, split)] * 2, ["", f"{rng.random()}/"]),
        lambda: FillView(source, "steps/reward", float(rng.integers(9)), is_chosen),
        lambda: TrimView(source, np.zeros(count, int), np.where(is_chosen, 1, -1)),
        lambda: FlagsView(source, is_chosen),
    ]
    if not is_named:
        views.append(lambda: RenameView(source, "steps/action", "steps/command"))
    return views[rng.integers(len(views))]()


@pytest.mark.parametrize("seed", range(6))
def test_stacks_of_views_give_the_same_rows_as_their_episodes(seed):
    rng, source = np.random.default_rng(seed), RobotSource()
    for _ in range(4):
        source = _random_view(source, rng)
    check_view(source)


class MixingView(View):
    """A view that uses other rows without a declaration."""

    def make(self, values, rows, fields):
        path = "steps/reward"
        return {**values, path: np.cumsum(values[path], dtype="f4")} if path in values else values


def test_view_that_mixes_rows_is_detected():
    with pytest.raises(AssertionError, match="rows of 'reward': got values differ"):
        check_view(MixingView(RobotSource()))
