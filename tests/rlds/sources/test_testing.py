"""The contract test for custom formats finds violations. All formats pass it: test_opening."""

import dataclasses

import numpy as np
import pytest
from export_options import NAMES, options_for
from robot_source import RobotSource
from toy_source import ToySource

import rlds.sources
from rlds.editing.changes import AddView, DropView, FillView, RenameView, fields_of
from rlds.editing.trimming import FlagsView, TrimView
from rlds.sources import About, Can, Episodes, Lengths, View
from rlds.sources.joined_source import JoinedSource
from rlds.sources.testing import check_export, check_source, check_view, differences
from rlds.sources.view import SelectedSource


class Changed(ToySource):
    """Episodes of which one attribute, or a column, is another."""

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


class Unpickled(ToySource):
    def __init__(self, path):
        super().__init__(path, num_episodes=3)
        self.add = 0.0

    def __reduce__(self):
        return _with_more, (type(self), self.path)

    def read(self, *arguments):
        episode = super().read(*arguments)
        episode.steps["observation"] += self.add
        return episode


def _with_more(kind, path):
    source = kind(path)
    source.add = 1.0
    return source


class Forgetful(ToySource):
    def read(self, split, index, fields=None, rows=slice(None)):
        episode = super().read(split, index)
        if fields is not None and not any("reward" in field for field in fields):
            episode.steps["action"] = episode.steps["action"] + 1
        return episode


class OffByOne(ToySource):
    can = Can(reads_rows=True)

    def read(self, split, index, fields=None, rows=slice(None)):
        episode = super().read(split, index)
        if rows != slice(None):
            rows = slice(rows.start + 1, rows.stop + 1)
        steps = {name: column[rows] for name, column in episode.steps.items()}
        return dataclasses.replace(episode, steps=steps)


class WrongLengths(ToySource):
    can = Can(lengths=lambda split: Lengths.create([9] * 100, final_observation_known=True))


class Uncounted(ToySource):
    can = Can(totals=lambda split: {"rows": 1})


class NoJson(ToySource):
    about = About(options={"sizes": (1, 2)})


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
        (Unpickled, "of a pickled copy: got .*observation: values differ"),
        (Forgetful, "steps 0 to 1 of 'observation'|of 'action': got values differ"),
        (OffByOne, "of 'observation': got"),
        (WrongLengths, "lengths: got"),
        (Uncounted, "counts of 'rows'"),
        (NoJson, "options: got .* expected what JSON gives back"),
    ],
    indirect=["broken"],
)
def test_broken_promises_are_seen(broken, message):
    with pytest.raises((AssertionError, ValueError), match=message):
        check_source(broken)


@pytest.mark.parametrize("format", rlds.sources.exports())
def test_exports_keep_episodes(format, tmp_path):
    episodes = Episodes(ToySource(tmp_path, num_episodes=3))
    options = options_for(format, episodes)
    exported = check_export(format, episodes, tmp_path / NAMES.get(format, "made"), **options)
    assert exported.num_episodes == 3


def test_an_export_that_forgets_a_field_is_seen(tmp_path, monkeypatch):
    kind = rlds.sources.formats()["zarr"].load_export()
    placements = kind.placements
    monkeypatch.setattr(kind, "placements", lambda self: placements(self)[1:])
    with pytest.raises(AssertionError, match=r"zarr, placements: nothing about \['steps/"):
        check_export("zarr", Episodes(ToySource(tmp_path, 3)), tmp_path / "made")


def test_differences_name_facts_and_fields(tmp_path):
    episodes = Episodes(ToySource(tmp_path, 3))
    one, two = episodes[0], dataclasses.replace(episodes[2], key="b", metadata={})
    steps = dict(two.steps, reward=two.steps["reward"].astype("f8"))
    actual = list(differences(one, dataclasses.replace(two, steps=steps), skipped=["steps/action"]))
    assert f"key: {one.key!r} became 'b'" in actual
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
def test_a_view_makes_of_rows_what_it_makes_of_episodes(kind):
    check_view(VIEWS[kind](RobotSource()))


def _more(source, rng):
    """A view of a source, at random."""
    [split] = source.splits
    number = source.num_episodes(split)
    some = rng.random(number) < 0.5
    is_named = "steps/command" in fields_of(source)
    views = [
        lambda: SelectedSource(source, {"some": rng.permutation(number)[:4]}, base_split=split),
        lambda: JoinedSource([Episodes(source, split)] * 2, ["", f"{rng.random()}/"]),
        lambda: FillView(source, "steps/reward", float(rng.integers(9)), some),
        lambda: TrimView(source, np.zeros(number, int), np.where(some, 1, -1)),
        lambda: FlagsView(source, some),
    ]
    if not is_named:
        views.append(lambda: RenameView(source, "steps/action", "steps/command"))
    return views[rng.integers(len(views))]()


@pytest.mark.parametrize("seed", range(6))
def test_stacks_of_views_make_of_rows_what_they_make_of_episodes(seed):
    rng, source = np.random.default_rng(seed), RobotSource()
    for _ in range(4):
        source = _more(source, rng)
    check_view(source)


class Mixing(View):
    """A view that looks at other rows, and does not say so."""

    def make(self, values, of, fields):
        path = "steps/reward"
        return {**values, path: np.cumsum(values[path], dtype="f4")} if path in values else values


def test_a_view_that_mixes_rows_is_seen():
    with pytest.raises(AssertionError, match="rows of 'reward': got values differ"):
        check_view(Mixing(RobotSource()))
