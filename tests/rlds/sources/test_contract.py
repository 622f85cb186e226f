"""Whatever a source can be asked reaches the source that a view is of, or a reason says why not."""

import dataclasses
import importlib
import inspect
import pkgutil

import numpy as np
import pytest
from clip_source import TOP, ClipSource

import rlds
import rlds.feeds
from rlds.editing.edited import EditedSource, Part, Rows
from rlds.feeds.combined import JoinedStorage
from rlds.feeds.storage import CachedStorage, Storage
from rlds.feeds.video import VideoStorage
from rlds.labels.labelled import LabelledSource
from rlds.labels.labels import Labels
from rlds.raw_files.input_files import Files
from rlds.robotics import DatasetMeaning
from rlds.sources import Episodes, Origin, RandomAccessSource, Source, SourceError
from rlds.sources.channel_order import RgbSource
from rlds.sources.encoded_clips import ClipsSource
from rlds.sources.encoded_frames import EncodedFrames
from rlds.sources.reading import cut
from rlds.sources.restored import DescribedSource, RestoredSource, UnrestoredSource
from rlds.sources.selected import SelectedSource
from rlds.sources.sidecar import PackedSidecar, Sidecar, StoredSidecar
from rlds.sources.source import Outlines
from rlds.sources.standardized import StandardizedSource
from rlds.sources.video_frames import FramesSource
from rlds.sources.wrapped import WrappedSource
from rlds_creator.viewing.cache import Cache
from rlds_creator.viewing.source_steps import SourceSteps
from rlds_ecosystem.model.fields import BGR, Field
from rlds_ecosystem.video_codec import Video

CONTRACT = {name for name in dir(RandomAccessSource) if not name.startswith("_")}


_SIZE = (400, 400, 3)  # So that the viewer reads spans of eight.


class NotingSource(ClipSource):
    """A source that notes what it is asked for, and says of everything what no default says."""

    description, homepage, citation, license = "Blocks.", "a.org", "@misc{a}", "CC0"
    finite_fields = ("action",)
    inputs_may_grow = True
    images_as_png = False
    video, quality = "frames", 71
    reads_rows = True
    episodes_per_part = 2
    splits = ("train", "test")
    step_flags = (rlds.IS_TERMINAL, rlds.IS_FIRST, rlds.IS_LAST)

    def __init__(self, file):
        super().__init__(file)
        self.file = file
        self.opened = Files(file)
        self.asked = set()

    def __getattribute__(self, name):
        if name in CONTRACT:
            self.__dict__.setdefault("asked", set()).add(name)
        return super().__getattribute__(name)

    def inputs(self):
        return [self.file]

    def with_image_files(self):
        again = NotingSource(self.file)
        again.asked = self.asked
        return again

    def step_fields(self):
        return {**super().step_fields(), "blue": Field(np.uint8, _SIZE, names=BGR)}

    def read(self, split, index, fields=None, rows=slice(None)):
        self.rows = rows
        episode = super().read(split, index)
        steps = {**episode.steps, "blue": np.zeros((episode.num_steps, *_SIZE), np.uint8)}
        return cut(dataclasses.replace(episode, steps=steps), rows)

    def num_steps(self, split):
        return [7, 14, 19]

    def outlines(self, split):
        return Outlines(np.array([7, 14, 19]), np.array([6, 13, 18]), np.zeros(3, bool))

    def shard_lengths(self, split):
        return [1, 2]

    def totals(self, split):
        return {"steps": 40}

    def faults(self, split):
        yield SourceError("a scratch", file=self.file)

    def origin(self, split, index):
        return Origin("robot", index, index + 1)


@pytest.fixture
def noting(tmp_path, monkeypatch):
    monkeypatch.setenv("RLDS_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data/robot").write_bytes(b"")
    return NotingSource(tmp_path / "data/robot")


def _restored(source):
    paths = {path: path for path in ("observation/joints", "action", "blue")}
    sidecar = Sidecar.of(Episodes(source, "train"), paths, whole=paths)
    rows = [sidecar.pack(source.read("train", index)) for index in range(3)]
    return RestoredSource(source, PackedSidecar(sidecar, "beside", rows.__getitem__, 3))


def _described(source):
    about = Sidecar.of_dataset(Episodes(source, "train"))
    return DescribedSource(source, StoredSidecar(about, "beside", None))


def _labelled(source):
    labels = Labels(Episodes(source, "train"))
    labels.add("good", 1, True, by="me")
    return LabelledSource(source, labels, [*labels])


def _edited(source):
    none = np.zeros(3, np.int64)
    rows = Rows({"train": np.arange(3)}, none, none - 1, none.astype(bool))
    return EditedSource([Part(Episodes(source, "train"))], [], rows, {}, {})


VIEWS = {
    WrappedSource: WrappedSource,
    SelectedSource: lambda source: SelectedSource(source, {"train": [2, 1, 0]}),
    DescribedSource: _described,
    UnrestoredSource: lambda source: UnrestoredSource(source, SourceError("lost")),
    RestoredSource: _restored,
    LabelledSource: _labelled,
    StandardizedSource: lambda source: StandardizedSource(
        source, DatasetMeaning("robot", standard_action=("observation/joints",))
    ),
    RgbSource: lambda source: RgbSource(source, ["blue"]),
    FramesSource: lambda source: FramesSource(source, [TOP]),
    EncodedFrames: lambda source: EncodedFrames(FramesSource(source, [TOP]), "png", 90),
    ClipsSource: lambda source: ClipsSource(source, Video("h264", 30, fps=10), [TOP]),
    EditedSource: _edited,
}

# What no view is asked for, and what follows from all that a view forwards.
OF_NO_VIEW = {
    "stored_sidecar": "it is read before any view is made",
    "opened": "the files of the bases are checked",
    "episodes_per_part": "a view reads its episodes one by one",
    "parts": "ranges of `num_episodes`",
    "episodes": "`read` of each",
    "step_paths": "those of `step_fields` and `step_flags`",
    "episode_paths": "those of `episode_fields`",
}
_OTHER_VALUES = "its episodes have other values"
_WHOLE = "it takes all steps of an episode"
_PUT_TOGETHER = "its episodes are no longer those of the base, but a base themselves"
_SEVERAL = "it may be of several datasets, some episodes of each"
_CHANGED = "changes rename, drop and add fields"
# Where a view answers itself.
ANSWERS = {
    SelectedSource: {
        "splits": "it is asked for some",
        "num_episodes": "it has some",
        "totals": "they are those of all episodes",
        "shard_lengths": "it has episodes of several shards",
    },
    RestoredSource: {
        **dict.fromkeys(("bases", "base_at", "stored_at", "stored_names"), _PUT_TOGETHER),
        **dict.fromkeys(("key", "outline", "outlines", "origin"), "the sidecar has it"),
        **dict.fromkeys(("step_fields", "episode_fields", "metadata"), "the sidecar has it"),
        "totals": "episodes have no counts of the files that they were exported to",
        "finite_fields": "the fields have other paths",
        "images_as_png": "it is of the format, not of what was exported to it",
        "reads_rows": "the sidecar has whole columns",
    },
    LabelledSource: {"reads_rows": _WHOLE, "stored_at": "labels are no part of what is stored"},
    StandardizedSource: {"stored_at": _OTHER_VALUES},
    RgbSource: {
        "stored_at": _OTHER_VALUES,
        "with_image_files": "exports make it of a source that has the files",
    },
    FramesSource: {"stored_at": _OTHER_VALUES},
    EncodedFrames: {"stored_at": _OTHER_VALUES},
    ClipsSource: {
        "stored_at": _OTHER_VALUES,
        "reads_rows": _WHOLE,
        "with_image_files": "exports make it of a source that has the files",
    },
    WrappedSource: {"stored_at": _OTHER_VALUES},
    EditedSource: {
        **dict.fromkeys(("splits", "options", "num_episodes"), "the edit says it"),
        **dict.fromkeys(("step_fields", "episode_fields", "aliases"), _CHANGED),
        **dict.fromkeys(("totals", "shard_lengths", "metadata", "inputs_may_grow"), _SEVERAL),
        "num_steps": "those of `outlines`",
        "origin": "a trimmed episode has other rows, which reading it tells",
        "with_image_files": "an edit is made of sources that have the files",
        **dict.fromkeys(("video", "quality"), "an edit is of packets"),
    },
}


def _called(view, name):
    """What a member of a source returns, with arguments by their names."""
    member = getattr(view, name)
    if not callable(member):
        return member
    known = {"split": "train", "index": 1, "part": "0-2"}
    needed = inspect.signature(member).parameters.values()
    found = member(**{p.name: known[p.name] for p in needed if p.default is p.empty})
    return list(found) if inspect.isgenerator(found) else found


@pytest.mark.parametrize("kind", VIEWS, ids=lambda kind: kind.__name__)
def test_a_view_forwards_all_that_it_does_not_answer(noting, kind):
    view = VIEWS[kind](noting)
    answers = {**OF_NO_VIEW, **ANSWERS.get(kind, {})}
    assert answers.keys() <= CONTRACT
    forwarded = set()
    for name in sorted(CONTRACT - OF_NO_VIEW.keys()):
        noting.asked.clear()
        answer = _called(view, name)
        is_value = not callable(getattr(view, name))
        if name in noting.asked or (is_value and answer == getattr(noting, name)):
            forwarded.add(name)
    assert forwarded == CONTRACT - answers.keys()


def test_what_a_source_notes_differs_from_every_default(noting):
    for name in CONTRACT - OF_NO_VIEW.keys() - {"step_flags", "splits"}:
        default = getattr(RandomAccessSource, name)
        if not callable(default):
            assert getattr(noting, name) != default, name


def _classes(kind):
    return {kind, *(each for derived in kind.__subclasses__() for each in _classes(derived))}


def _import_all():
    for room in ("sources", "editing", "labels", "robotics", "feeds", "video", "raw_files"):
        package = importlib.import_module(f"rlds.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".compat" not in module.name:
                importlib.import_module(module.name)


def test_all_views_are_known():
    _import_all()
    ours = [
        kind
        for kind in _classes(Source)
        if kind.__module__.startswith("rlds") and not inspect.isabstract(kind)
    ]
    views = {
        kind
        for kind in ours
        if issubclass(kind, WrappedSource) or not kind.__module__.startswith("rlds.formats.")
    }
    assert views == VIEWS.keys()


@pytest.mark.parametrize("kind", VIEWS, ids=lambda kind: kind.__name__)
def test_a_view_is_opened_for_training_without_reading_an_episode(noting, kind):
    view = VIEWS[kind](noting)
    noting.asked.clear()
    table = rlds.feeds.open(Episodes(view, "train"))
    assert table.outlines.num_steps.tolist() == [7, 14, 19][:: -1 if kind is SelectedSource else 1]
    assert "read" not in noting.asked


@pytest.mark.parametrize("kind", VIEWS, ids=lambda kind: kind.__name__)
def test_the_viewer_reads_no_more_than_a_view_needs(noting, kind):
    view = VIEWS[kind](noting)
    steps = SourceSteps(Episodes(view, "train"), 1, Cache(1 << 26))
    assert steps.num_steps == 14
    assert steps.step(2, ["blue"])["blue"].shape == _SIZE
    assert noting.rows == (slice(0, 8) if view.reads_rows else slice(None))


STORAGE = {name for name in {*dir(Storage), *Storage.__annotations__} if name[0] != "_"}


class NotingStorage(CachedStorage):
    """A storage that notes what it is asked for."""

    def __init__(self, other):
        vars(self).update(vars(other), asked=set())
        self.why_cached, self.num_files, self.is_remote = "noted", 7, True

    def __getattribute__(self, name):
        if name in STORAGE:
            self.__dict__.setdefault("asked", set()).add(name)
        return super().__getattribute__(name)

    def read_ahead(self, episodes, firsts, lasts, paths):
        pass

    def metadata_column(self, name):
        return np.zeros(3)


def _with_frames(table):
    frames = Episodes(FramesSource(table.episodes.source, [TOP]), "train")
    return VideoStorage(frames, table.storage.fields, table.storage, 0)


def _unified(table):
    like, fields = {"joints": ("float32", (2,))}, {"joints": "observation/joints"}
    return rlds.feeds.unify(table, like, fields, hz=10, to_hz=10).storage


def _trajectories(table):
    return rlds.feeds.map_episodes(table, lambda steps: {"blue": steps["blue"]}).storage


# Storages that are made of another one: a field of each, and what makes it.
STORAGES = {
    "ExtendedStorage": (
        "action",
        lambda table: table.with_column("more", np.zeros(40)).storage,
    ),
    "JoinedStorage": ("action", lambda table: JoinedStorage([table])),
    "VideoStorage": ("action", _with_frames),
    "_UnifiedStorage": ("joints", _unified),
    "_TrajectoryStorage": ("blue", _trajectories),
}
OF_NO_STORAGE = {"fields": "it has others", "opening": "it is made again otherwise"}
STORAGE_ANSWERS = {
    "_UnifiedStorage": {"is_image": "the shape says it: images of other sizes are made"},
    "_TrajectoryStorage": {"why_cached": "a function makes it of whole episodes"},
}


def _storage_asked(storage, name, path):
    one = np.ones(1, np.int64)
    known = {"path": path, "paths": [path], "name": "seed"}
    known |= dict.fromkeys(("episodes", "steps", "firsts", "lasts"), one)
    member = getattr(storage, name)
    if callable(member):
        found = member(**{name: known[name] for name in inspect.signature(member).parameters})
        if name == "rows":
            found.take(path)


@pytest.mark.parametrize("kind", STORAGES)
def test_a_storage_of_another_one_forwards_all_that_it_does_not_answer(noting, kind):
    path, make = STORAGES[kind]
    table = rlds.feeds.open(Episodes(noting, "train"))
    table.storage = base = NotingStorage(table.storage)
    storage = make(table)
    assert type(storage).__name__ == kind
    forwarded = set()
    for name in STORAGE - OF_NO_STORAGE.keys():
        base.asked.clear()
        _storage_asked(storage, name, path)
        is_asked, member = name in base.asked, getattr(storage, name)
        if is_asked or (not callable(member) and np.array_equal(member, getattr(base, name))):
            forwarded.add(name)
    assert forwarded == STORAGE - OF_NO_STORAGE.keys() - STORAGE_ANSWERS.get(kind, {}).keys()


def test_all_storages_of_others_are_known():
    _import_all()
    # Those that read files, and what all that are made of another one have in common.
    bases = {"CachedStorage", "MappedStorage", "WrappedStorage"}
    ours = [kind for kind in _classes(Storage) - {Storage} if kind.__module__[:5] == "rlds."]
    assert {kind.__name__ for kind in ours} - bases == STORAGES.keys()
