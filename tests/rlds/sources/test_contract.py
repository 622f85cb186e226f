"""Views forward all abilities and facts of their source, or a reason is listed here."""

import dataclasses
import importlib
import inspect
import pkgutil

import numpy as np
import pytest
from clip_source import TOP, ClipSource

import rlds
import rlds.feeds
from rlds.editing.action_kinds import ActionsView
from rlds.editing.changes import (
    AddView,
    Change,
    DropView,
    FillView,
    MeaningView,
    RenameView,
    fields_of,
)
from rlds.editing.trimming import FlagsView, TrimView
from rlds.editing.unifying import UnifyView
from rlds.feeds.materialising import Materialised
from rlds.feeds.storage import CachedStorage, Storage
from rlds.feeds.unified import UniformFields
from rlds.feeds.views import ViewStorage, WithColumn
from rlds.labels.as_fields import LabelledSource
from rlds.labels.labels import Labels
from rlds.raw_files.input_files import Files
from rlds.robotics import DatasetMeaning
from rlds.sources import (
    AnySource,
    Capabilities,
    Episodes,
    Lengths,
    Origin,
    Source,
    SourceError,
    SourceInfo,
    View,
)
from rlds.sources.channel_order import RgbSource
from rlds.sources.encoded_clips import ClipsSource
from rlds.sources.encoded_frames import EncodedFrames
from rlds.sources.joined_source import JoinedSource
from rlds.sources.reading import cut
from rlds.sources.restored_source import DescribedSource, RestoredSource, UnrestoredSource
from rlds.sources.sidecar import PackedSidecar, Sidecar, StoredSidecar
from rlds.sources.standardization import StandardizedSource
from rlds.sources.text_tables import RenumberedSource
from rlds.sources.video_frames import FramesSource
from rlds.sources.view import SelectedSource
from rlds_creator.viewing.cache import Cache
from rlds_creator.viewing.source_steps import SourceSteps
from rlds_ecosystem.model.fields import BGR, Field
from rlds_ecosystem.model.nests import leaves_at
from rlds_ecosystem.video_codec import Video

MEMBERS = {name for name in {*dir(Source), *AnySource.__annotations__} if name[0] != "_"}
ABILITIES = {field.name for field in dataclasses.fields(Capabilities)}
FACTS = {field.name for field in dataclasses.fields(SourceInfo)}

_SIZE = (400, 400, 3)  # The viewer reads spans of eight images of this size.


class RecordingSource(ClipSource):
    """A source that records its accessed abilities, and differs from all defaults."""

    source_info = SourceInfo(
        description="Blocks.",
        homepage="a.org",
        citation="@misc{a}",
        license="CC0",
        metadata={"robot": "arm"},
        options={"color": "blue"},
        aliases={"grip": "steps/action"},
        finite_fields=("action",),
        images_as_png=False,
    )
    may_grow = True
    splits = ("train",)

    def __init__(self, file):
        super().__init__(file)
        self.file, self.accessed = file, set()
        self.opened_files = Files(file)

    def _note(self, ability, answer):
        def call(*arguments):
            self.accessed.add(ability)
            return answer(*arguments)

        return call

    def inputs(self):
        return [self.file]

    @property
    def fields(self):
        fields = super().fields
        steps = {**fields.steps, "blue": Field(np.uint8, _SIZE, names=BGR)}
        return fields.replace(steps=steps, flags=(rlds.IS_TERMINAL, rlds.IS_FIRST, rlds.IS_LAST))

    def read(self, split, index, fields=None, rows=slice(None)):
        self.accessed.add("read")
        self.rows = rows
        episode = super().read(split, index)
        steps = {**episode.steps, "blue": np.zeros((episode.num_steps, *_SIZE), np.uint8)}
        return cut(dataclasses.replace(episode, steps=steps), rows)

    def _copy(self):
        copy = RecordingSource(self.file)
        copy.accessed = self.accessed
        return copy

    @property
    def capabilities(self):
        answers = {
            "lengths": lambda split: Lengths.create([7, 14, 19], final_observation_known=False),
            "totals": lambda split: {"steps": 40},
            "faults": lambda split: iter([SourceError("a scratch", file=self.file)]),
            "origin": lambda split, index: Origin("robot", index, index + 1),
            "shards": lambda split: [1, 2],
            "image_files": self._copy,
            "run": lambda split, begin, end: [],
            "hold_open": lambda: self.held_file,
            "sidecar": lambda: None,
        }
        calls = {name: self._note(name, answer) for name, answer in answers.items()}
        return Capabilities(reads_rows=True, keeps_keys=True, video="frames", quality=71, **calls)

    @property
    def held_file(self):
        return open(self.file, "rb")


@pytest.fixture
def recording(tmp_path, monkeypatch):
    monkeypatch.setenv("RLDS_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data/robot").write_bytes(b"")
    return RecordingSource(tmp_path / "data/robot")


def _restore(source):
    paths = {path: path for path in ("observation/joints", "action", "blue")}
    sidecar = Sidecar.create(Episodes(source, "train"), paths, final_row_paths=paths)
    rows = [sidecar.pack(source.read("train", index)) for index in range(3)]
    return RestoredSource(source, PackedSidecar(sidecar, "beside", rows.__getitem__, 3))


def _change(source):
    source = DropView(source, "steps/action")
    joints = lambda episode: episode.steps["observation"]["joints"]  # noqa: E731
    source = AddView(source, "steps/action", joints, source.read("train", 0))
    for path, kind in (("observation/joints", ""), ("action", "absolute")):
        source = MeaningView(source, path, {"kind": kind, "unit": "rad", "names": ("x", "y")})
    return ActionsView(source, "delta")


def _describe(source):
    sidecar = Sidecar.metadata_only(Episodes(source, "train"))
    return DescribedSource(source, StoredSidecar(sidecar, "beside", None))


def _label(source):
    labels = Labels(Episodes(source, "train"))
    labels.add("good", 1, True, by="me")
    return LabelledSource(source, labels, [*labels])


def _unify(source):
    new_fields = {"blue": Field(np.uint8, _SIZE), "joints": Field(np.float32, (2,))}
    sources = {"blue": "blue", "joints": "observation/joints"}
    stored_fields = dict(leaves_at(source.fields.steps, None))
    return UniformFields(
        source, stored_fields, source.capabilities.lengths("train"), new_fields, sources, 1.0, {}
    )


_NONE, _ALL = np.zeros(3, np.int64), np.ones(3, bool)
VIEWS = {
    View: View,
    SelectedSource: lambda source: SelectedSource(source, {"train": [2, 1, 0]}),
    JoinedSource: lambda source: JoinedSource([Episodes(source, "train")]),
    DescribedSource: _describe,
    UnrestoredSource: lambda source: UnrestoredSource(source, SourceError("lost")),
    RestoredSource: _restore,
    LabelledSource: _label,
    StandardizedSource: lambda source: StandardizedSource(
        source, DatasetMeaning("robot", standard_action=("observation/joints",))
    ),
    RgbSource: lambda source: RgbSource(source, ["blue"]),
    FramesSource: lambda source: FramesSource(source, [TOP]),
    Materialised: lambda source: Materialised(source, None, "png", None, "accurate"),
    EncodedFrames: lambda source: EncodedFrames(FramesSource(source, [TOP]), "png", 90),
    ClipsSource: lambda source: ClipsSource(source, Video("h264", 30, fps=10), [TOP]),
    Change: lambda source: Change(source, fields_of(source)),
    RenameView: lambda source: RenameView(source, "steps/action", "steps/grip"),
    DropView: lambda source: DropView(source, "steps/action"),
    MeaningView: lambda source: MeaningView(source, "steps/action", {"kind": "delta"}),
    ActionsView: _change,
    FillView: lambda source: FillView(source, "steps/action", 1, _ALL),
    AddView: lambda source: AddView(source, "length", len, source.read("train", 0)),
    UnifyView: lambda source: UnifyView(source, fields_of(source), {}),
    RenumberedSource: lambda source: RenumberedSource(source, {}),
    TrimView: lambda source: TrimView(source, _NONE, _NONE - 1),
    FlagsView: lambda source: FlagsView(source, _ALL),
    UniformFields: _unify,
    WithColumn: lambda source: WithColumn(source, "more", np.zeros(40), np.array([0, 7, 21])),
}

_NO_VIEW = {
    "sidecar": "it is read before any view is created",
    "examples": "a view is no copy of stored examples",
    "keeps_keys": "it is asked of the bases",
    "run": "a view reads its episodes one by one",
}
_NEEDS_FILES = "exports make it of a source that has the files"
_IN_SIDECAR = "the sidecar has it"
# Abilities that a view lacks or implements itself, and facts that it states itself.
ANSWERS = {
    SelectedSource: {
        "totals": "they are those of all episodes",
        "shards": "it has episodes of several shards",
        "options": "which episodes it has",
    },
    JoinedSource: {
        "totals": "they are those of one dataset",
        "shards": "they are those of one dataset",
    },
    RestoredSource: {
        **dict.fromkeys(("lengths", "origin"), _IN_SIDECAR),
        "totals": "episodes have no counts of the files that they were exported to",
        "reads_rows": "the sidecar has whole columns",
        "finite_fields": "the fields have other paths",
        "images_as_png": "it is of the format, not of what was exported to it",
    },
    LabelledSource: {"options": "which labels there are"},
    ActionsView: {
        "options": "the kind of actions",
        "finite_fields": "the action of before is dropped",
    },
    StandardizedSource: {
        **dict.fromkeys(("metadata", "options"), "the definition of the standard"),
    },
    RgbSource: {"image_files": _NEEDS_FILES},
    FramesSource: {"options": "which cameras are decoded"},
    EncodedFrames: {"options": "which cameras are decoded", "image_files": _NEEDS_FILES},
    Materialised: {"images_as_png": "it was asked for", "image_files": _NEEDS_FILES},
    ClipsSource: {
        "image_files": _NEEDS_FILES,
        "reads_rows": "a clip is encoded of all frames",
    },
    RenameView: {"finite_fields": "the field has another name"},
    DropView: {"finite_fields": "a field that is gone is not checked"},
    TrimView: {"origin": "a trimmed episode has other rows, which reading it tells"},
    UniformFields: {"origin": "a step has values of several rows"},
}


_OTHER_FLAGS = JoinedSource, FlagsView, UniformFields


def _use(view, name, split):
    """Uses an ability of a view."""
    arguments = {"origin": (split, 1), "image_files": ()}
    parameters = arguments.get(name, () if name == "hold_open" else (split,))
    answer = getattr(view.capabilities, name)(*parameters)
    if name == "hold_open":
        with answer:
            pass
    return [*answer] if inspect.isgenerator(answer) else answer


@pytest.mark.parametrize("kind", VIEWS, ids=lambda kind: kind.__name__)
def test_views_forward_all_other_abilities_and_facts(recording, kind):
    view = VIEWS[kind](recording)
    answers = {**_NO_VIEW, **ANSWERS.get(kind, {})}
    split, forwarded = view.splits[0], set()
    for name in ABILITIES - _NO_VIEW.keys():
        recording.accessed.clear()
        if name in ("reads_rows", "video", "quality"):
            reaches = getattr(view.capabilities, name) == getattr(recording.capabilities, name)
        else:
            reaches = getattr(view.capabilities, name) is not None
            if reaches:
                _use(view, name, split)
                reaches = name in recording.accessed
        if reaches:
            forwarded.add(name)
    facts = {n for n in FACTS if getattr(view.source_info, n) == getattr(recording.source_info, n)}
    assert forwarded | facts == (ABILITIES | FACTS) - answers.keys()
    assert view.inputs()[0] == recording.inputs()[0]
    assert view.may_grow == recording.may_grow
    assert view.fields.flags == recording.fields.flags or kind in _OTHER_FLAGS


def _classes(kind):
    return {kind, *(each for derived in kind.__subclasses__() for each in _classes(derived))}


def _import_all():
    for folder in ("sources", "editing", "labels", "robotics", "feeds", "video", "raw_files"):
        package = importlib.import_module(f"rlds.{folder}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".compat" not in module.name:
                importlib.import_module(module.name)


def test_all_views_are_listed():
    _import_all()
    ours = [
        kind
        for kind in _classes(AnySource)
        if kind.__module__.startswith("rlds.") and not inspect.isabstract(kind)
    ]
    views = {
        kind
        for kind in ours
        if issubclass(kind, View) or not kind.__module__.startswith("rlds.formats.")
    }
    assert views == VIEWS.keys()


@pytest.mark.parametrize("kind", VIEWS, ids=lambda kind: kind.__name__)
def test_views_open_for_training_without_reading_an_episode(recording, kind):
    view = VIEWS[kind](recording)
    recording.accessed.clear()
    table = rlds.feeds.open(Episodes(view, view.splits[0]))
    assert table.summaries.num_steps.tolist() == [7, 14, 19][:: -1 if kind is SelectedSource else 1]
    assert "read" not in recording.accessed


@pytest.mark.parametrize("kind", VIEWS, ids=lambda kind: kind.__name__)
def test_the_viewer_reads_no_more_than_a_view_needs(recording, kind):
    view = VIEWS[kind](recording)
    steps = SourceSteps(Episodes(view, view.splits[0]), 1, Cache(1 << 26))
    assert steps.num_steps == 14
    assert steps.step(2, ["blue"])["blue"].shape == _SIZE
    assert recording.rows == (slice(0, 8) if view.capabilities.reads_rows else slice(None))


def test_columns_have_no_values_of_unselected_episodes(recording):
    begins = np.array([0, -1, 7])
    view = WithColumn(recording, "more", np.arange(26.0), begins)
    assert view.read("train", 2, ["steps/more"]).steps["more"].tolist() == [*range(7, 26)]
    with pytest.raises(ValueError, match="more: episode 1 has no values"):
        view.read("train", 1)


def test_the_contract_is_small():
    members = "source_info", "fields", "capabilities", "splits", "inputs", "num_episodes", "key"
    assert {*members, "read", "bases", "may_grow", "opened_files"} == MEMBERS


STORAGE = {name for name in {*dir(Storage), *Storage.__annotations__} if name[0] != "_"}


class RecordingStorage(CachedStorage):
    """A storage that records its accessed members."""

    def __init__(self, other):
        vars(self).update(vars(other), accessed=set())
        self.why_cached, self.num_files, self.is_remote = "noted", 7, True

    def __getattribute__(self, name):
        if name in STORAGE:
            self.__dict__.setdefault("accessed", set()).add(name)
        return super().__getattribute__(name)

    def read_ahead(self, episodes, firsts, lasts, paths):
        pass

    def metadata_column(self, name):
        return np.zeros(3)


def _view(table):
    view = Episodes(View(table.episodes.source), "train")
    return ViewStorage(view, table.storage.fields, lambda piece, paths: table.storage, None)


def _map(table):
    return rlds.feeds.map_episodes(table, lambda steps: {"blue": steps["blue"]}).storage


# Storages that wrap another one: one of its fields, and its constructor.
STORAGES = {
    "ViewStorage": ("action", _view),
    "_TrajectoryStorage": ("blue", _map),
}
OWN_MEMBERS = {"fields": "it has its own fields"}
STORAGE_ANSWERS = {
    "_TrajectoryStorage": {"why_cached": "a function needs whole episodes"},
}


def _use_storage(storage, name, path):
    array = np.ones(1, np.int64)
    values_by_name = {"path": path, "paths": [path], "name": "seed"}
    values_by_name |= dict.fromkeys(("episodes", "steps", "first_steps", "last_steps"), array)
    member = getattr(storage, name)
    if callable(member):
        answer = member(
            **{name: values_by_name[name] for name in inspect.signature(member).parameters}
        )
        if name == "rows":
            answer.take(path)


@pytest.mark.parametrize("kind", STORAGES)
def test_storages_forward_all_other_members(recording, kind):
    path, make = STORAGES[kind]
    table = rlds.feeds.open(Episodes(recording, "train"))
    table.storage = base = RecordingStorage(table.storage)
    storage = make(table)
    assert type(storage).__name__ == kind
    forwarded = set()
    for name in STORAGE - OWN_MEMBERS.keys():
        base.accessed.clear()
        _use_storage(storage, name, path)
        is_asked, member = name in base.accessed, getattr(storage, name)
        if is_asked or (not callable(member) and np.array_equal(member, getattr(base, name))):
            forwarded.add(name)
    assert forwarded == STORAGE - OWN_MEMBERS.keys() - STORAGE_ANSWERS.get(kind, {}).keys()


def test_all_wrapping_storages_are_listed():
    _import_all()
    # Storages that read files, and the base class of wrapping storages.
    bases = {"CachedStorage", "MappedStorage"}
    ours = [kind for kind in _classes(Storage) - {Storage} if kind.__module__[:5] == "rlds."]
    assert {kind.__name__ for kind in ours} - bases == STORAGES.keys()
