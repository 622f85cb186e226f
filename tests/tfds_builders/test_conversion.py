"""Conversions to unusual paths, of unusual data, and with failures on the way."""

import contextlib
import dataclasses
import os
import resource
import shutil
import uuid
import weakref
from pathlib import Path

import conversions
import numpy as np
import pytest
import tensorflow_datasets as tfds
from etils import epath
from etils.epath import backend, gpath, register
from stores_of_tests import clients
from toy_source import ToySource

from envlogger.errors import StorageError
from rlds.conversion import staging
from rlds.formats.tfds import encoding, episode_groups
from rlds.raw_files.input_files import check_unchanged, state_of
from rlds.raw_files.untrusted import SourceChangedError
from rlds.sources.source import Capabilities, DamagedEpisode, SourceError, Stream
from rlds_ecosystem.files import stores
from tfds_builders.builder import SourceBuilder, convert
from tfds_files import indexing, open_folder

ON_BEAM = {"beam_runner": "DirectRunner", "beam_options": ["--direct_running_mode=in_memory"]}


LARGE = tfds.features.Tensor(shape=(10_000,), dtype=np.float64)


class RldsToyTwo(SourceBuilder):
    """Synthetic episodes."""

    VERSION = tfds.core.Version("1.0.0")

    def make_source(self, path):
        return ToySource(path)

    def raw_name(self):
        return "toy.raw"


class Large(ToySource):
    """Episodes of 160 kB."""

    fields = ToySource.fields.replace(steps={**ToySource.fields.steps, "large": LARGE})

    def read(self, split, index, fields=None, rows=slice(None)):
        episode = super().read(split, index)
        large = np.random.default_rng(index).random((episode.num_steps, 10_000))
        return dataclasses.replace(episode, steps={**episode.steps, "large": large})


class Keys(ToySource):
    """Episodes whose keys have unusual characters."""

    KEYS = ("a b", "é中", "100%", "*?[x]", "x\ny\u2028", "tab\t", "", "../up", '"', "'")

    def key(self, split, index):
        return self.KEYS[index]


class TwoSplits(ToySource):
    """Both splits have episodes with the same keys; the second may have none."""

    splits = ("train", "test")
    number_in_test = 3
    capabilities = Capabilities()

    def num_episodes(self, split):
        return self.count if split == "train" else self.number_in_test


@pytest.fixture
def raw(tmp_path, monkeypatch):
    conversions.cut_finely(monkeypatch)
    path = tmp_path / "toy.raw"
    path.write_text("toy")
    return path


def config(**kwargs):
    return tfds.download.DownloadConfig(**kwargs)


# --- Data ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_odd_keys_are_kept_and_resumed(raw, tmp_path):
    builder = convert(Keys(raw), name="toy", data_dir=tmp_path, shuffle=False)
    keys = [
        episode["episode_id"].decode() for episode in tfds.as_numpy(builder.as_dataset("train"))
    ]
    assert keys == list(Keys.KEYS)
    conversions.check_resumes(
        lambda: Keys(raw), tmp_path, conversions.contents(convert_to(tmp_path / "c", Keys(raw)))
    )


def convert_to(directory, source, **kwargs):
    return convert(source, name="converted", data_dir=directory, **kwargs).data_path


@pytest.mark.slow
def test_memory_holds_one_large_episode(raw, tmp_path, monkeypatch):
    """An episode is released before the next one is read."""
    monkeypatch.setattr(episode_groups, "_MAX_GROUP_BYTES", 1000)
    columns, alive = [], []

    class Watched(Large):
        def read(self, split, index, fields=None, rows=slice(None)):
            alive.append(sum(column() is not None for column in columns))
            episode = super().read(split, index)
            columns.append(weakref.ref(episode.steps["large"]))
            return episode

    convert_to(tmp_path, Watched(raw))
    assert alive == [0] * 10


def test_a_key_that_is_no_text_is_refused(raw, tmp_path, monkeypatch):
    monkeypatch.setattr(Keys, "KEYS", ("\udcff",) * 10)
    with pytest.raises(SourceError, match="surrogates not allowed"):
        convert_to(tmp_path, Keys(raw))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uni é 中 100%s", "st*r [x]? '\"\n"])
def test_paths_with_odd_names_are_converted(tmp_path, name):
    directory = tmp_path / name
    directory.mkdir()
    raw = directory / f"{name}.raw"
    raw.write_text("toy")
    builder = convert(ToySource(raw), name="toy", data_dir=directory)
    assert len(builder.as_dataset(split="train")) == 10
    names = {path.name for path in directory.iterdir()}
    assert names == {raw.name, "toy"}  # TFDS adds no folder for downloads.


@pytest.mark.slow
def test_both_splits_are_converted_and_resumed(raw, tmp_path):
    builder = conversions.check_conversion(lambda: TwoSplits(raw), tmp_path / "a")
    conversions.check_resumes(
        lambda: TwoSplits(raw), tmp_path, conversions.contents(builder.data_path)
    )


def test_each_shard_has_an_index_file(raw, tmp_path, monkeypatch):
    monkeypatch.setattr(indexing, "_MIN_INDEXED_BYTES", 0)
    with pytest.raises(conversions.Interrupted):
        source = conversions.interrupted(ToySource(raw), 6, [])
        convert_to(tmp_path, source, download_config=config(num_shards=3))
    folder = convert_to(tmp_path, ToySource(raw), download_config=config(num_shards=3))
    monkeypatch.setattr(indexing, "index_shard", None)  # No shard is indexed again.
    indexes = indexing.open_indexes(open_folder(folder)["train"])
    assert sum(map(len, indexes)) == 10
    paths = [f"{Path(index.path).name}.index" for index in indexes]
    assert sorted(path.name for path in (folder / ".feeds").iterdir()) == paths


def test_a_split_without_episodes_is_refused_before_reading(raw, tmp_path, monkeypatch):
    monkeypatch.setattr(TwoSplits, "number_in_test", 0)
    keys = []
    with pytest.raises(SourceError, match="split 'test': no episodes to convert"):
        convert_to(tmp_path, conversions.interrupted(TwoSplits(raw), None, keys))
    assert not keys


def test_a_split_of_damaged_episodes_only_is_an_error(raw, tmp_path, monkeypatch):
    def read(self, split, index, fields=None, rows=slice(None)):
        raise SourceError("scratched", file=self.path)

    monkeypatch.setattr(ToySource, "read", read)
    with pytest.raises(SourceError, match="scratched"):
        convert_to(tmp_path, ToySource(raw), skip_damaged=True)


def test_too_large_episodes_are_refused_or_skipped(raw, tmp_path, monkeypatch):
    """The limit is 2 GB, which would take the test too long."""
    monkeypatch.setattr(encoding, "_MAX_MESSAGE_BYTES", 2 * 10_000 * 8 + 1000)
    with pytest.raises(SourceError, match=r"toy.raw:1: 24\d,\d\d\d bytes, .* at most 161,000"):
        convert_to(tmp_path, Large(raw))
    with pytest.warns(UserWarning, match="6 episodes are damaged"):
        builder = convert(
            Large(raw), name="converted", data_dir=tmp_path, skip_damaged=True, verify=True
        )
    assert builder.info.splits["train"].num_examples == 4


def test_the_same_key_in_two_parts_is_refused(raw, tmp_path, monkeypatch):
    monkeypatch.setattr(Keys, "KEYS", (*"abcdef", "a", *"hij"))
    with pytest.raises(SourceError, match=r"split 'train', .*another episode has the key"):
        convert_to(tmp_path, Keys(raw))


def test_a_part_is_not_read_further_after_damage_that_ends_it(raw, tmp_path):
    """The damage and the end of the part are recorded before the next read."""

    class Torn(Stream):
        fields = ToySource.fields

        def inputs(self):
            return [raw]

        def parts(self, split):
            return ["a", "b", "c"]

        def episodes(self, split, part, after=None):
            toy = ToySource(raw)
            for index in range(2):
                yield dataclasses.replace(toy.read(split, index), key=f"{part}:{index}")
            yield DamagedEpisode(f"{part}:torn", SourceError("torn", file=raw), ends_part=True)
            raise conversions.Interrupted

    with pytest.warns(UserWarning, match="3 episodes are damaged"):
        builder = convert(Torn(), name="toy", data_dir=tmp_path, skip_damaged=True)
    assert builder.info.splits["train"].num_examples == 6


# --- Target folders ------------------------------------------------------------------------------


@pytest.fixture
def remote(monkeypatch):
    """A directory in an object store, simulated by TensorFlow's file system in memory."""
    monkeypatch.setattr(gpath, "_URI_PREFIXES", (*gpath._URI_PREFIXES, "ram://"))
    monkeypatch.setattr(gpath, "_URI_SCHEMES", gpath._URI_SCHEMES | {"ram"})
    monkeypatch.setitem(gpath._URI_MAP_ROOT, "ram://", "/ram/")
    monkeypatch.setitem(gpath._PREFIX_TO_BACKEND, "ram", backend.tf_backend)
    register.register_path_cls(("ram://",))(gpath.PosixGPath)
    store = clients._TensorFlowStore()
    upload = store.upload

    def replace(file, url):
        with contextlib.suppress(FileNotFoundError):  # The store cannot shorten files.
            store.remove(url)
        upload(file, url)

    monkeypatch.setattr(store, "upload", replace)
    monkeypatch.setattr(clients, "client_of", lambda url: store)
    monkeypatch.setitem(clients.LIBRARIES, "ram", "tensorflow")
    epath.Path("ram://bucket").mkdir(parents=True, exist_ok=True)
    return stores.as_path(f"ram://bucket/{uuid.uuid4().hex}")


@pytest.mark.filterwarnings("ignore")  # Of Beam, whose version we do not choose.
@pytest.mark.parametrize(
    "options", [{}, pytest.param(ON_BEAM, marks=pytest.mark.slow)], ids=["serial", "beam"]
)
def test_a_conversion_to_an_object_store_is_resumed(raw, tmp_path, remote, monkeypatch, options):
    monkeypatch.setattr(indexing, "_MIN_INDEXED_BYTES", 0)  # No index is uploaded.
    monkeypatch.setenv("RLDS_CACHE_DIR", str(tmp_path / "here"))
    (tmp_path / "here").mkdir()
    download_config = config(num_shards=2, **options)
    expected = convert_to(tmp_path, ToySource(raw), download_config=config(num_shards=2))
    with pytest.raises(conversions.Interrupted):
        source = conversions.interrupted(ToySource(raw), 6, [])
        convert_to(remote, source, download_config=config(num_shards=2))
    target = convert_to(remote, ToySource(raw), download_config=download_config)
    actual = {path.name: path.read_bytes() for path in target.iterdir() if path.is_file()}
    files = [path for path in Path(expected).iterdir() if path.is_file()]
    assert actual == {path.name: path.read_bytes() for path in files}
    assert not [path for path in (tmp_path / "here").rglob("*") if path.is_file()]


@pytest.mark.slow
def test_a_tilde_is_the_home_directory(raw, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    target = convert_to("~/data", ToySource(raw))
    assert os.fspath(target) == str(tmp_path / "data" / "converted" / "1.0.0")
    RldsToyTwo(path="~/toy.raw", data_dir="~/data").download_and_prepare()
    RldsToyTwo(data_dir="~/other").download_and_prepare(download_config=config(manual_dir="~"))
    assert (tmp_path / "other" / "rlds_toy_two" / "1.0.0").exists()


def test_a_folder_that_cannot_be_written_is_an_error(raw, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"/file/converted' cannot be written .*another path"):
        convert_to(tmp_path / "file", ToySource(raw))


@pytest.fixture
def limit_file_size():
    """Yields a function that limits the size of files, as if the disk were full."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_a_conversion_resumes_after_a_full_disk(raw, tmp_path, limit_file_size, file_format):
    expected = convert_to(tmp_path / "whole", Large(raw), file_format=file_format)
    limit_file_size(1_500_000)  # Staged files are smaller, the dataset is not.
    with pytest.raises(OSError, match="File too large") as caught:
        convert_to(tmp_path, Large(raw), file_format=file_format)
    limit_file_size(resource.RLIM_INFINITY)
    assert f"{tmp_path}/converted/" in str(caught.value)
    assert [path.name for path in (tmp_path / "converted").iterdir()] == [".1.0.0.parts"]
    keys = []
    target = convert_to(
        tmp_path, conversions.interrupted(Large(raw), None, keys), file_format=file_format
    )
    assert not keys
    assert conversions.contents(target) == conversions.contents(expected)


# --- Interruptions -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda raw: os.utime(raw, ns=(0, raw.stat().st_mtime_ns + 1)),  # The size is the same.
        lambda raw: raw.write_text("other"),
    ],
)
def test_resuming_with_changed_raw_data_is_refused(raw, tmp_path, change):
    with pytest.raises(conversions.Interrupted):
        convert_to(tmp_path, conversions.interrupted(ToySource(raw), 5, []))
    change(raw)
    with pytest.raises(ValueError, match=r"1\.0\.0\.parts has parts .* other data or with other"):
        convert_to(tmp_path, ToySource(raw))


def test_resuming_with_another_source_or_options_is_refused(raw, tmp_path):
    """The staged data then cannot be used."""
    with pytest.raises(conversions.Interrupted):
        convert_to(tmp_path, conversions.interrupted(ToySource(raw), 5, []))
    lenient = ToySource(raw)
    lenient.source_info = lenient.source_info.replace(finite_fields=())
    shards = {"download_config": config(num_shards=2)}
    for source, options in (
        *((ToySource(raw, 9), {}), (Large(raw), {}), (ToySource(raw), {"shuffle": False})),
        *((ToySource(raw), shards), (ToySource(raw), {"file_format": "array_record"})),
    ):
        with pytest.raises(ValueError, match="has parts of an unfinished dataset"):
            convert_to(tmp_path, source, **options)
    convert_to(tmp_path, ToySource(raw))


@contextlib.contextmanager
def killed_at_the_end(monkeypatch):
    """Kills a conversion in this context before it removes the staged files."""
    remove = staging.Staging.remove

    def die(self):
        if (self.folder / "joined").exists():
            raise conversions.Interrupted
        remove(self)

    with monkeypatch.context() as patch, pytest.raises(conversions.Interrupted):
        patch.setattr(staging.Staging, "remove", die)
        yield


def test_a_conversion_killed_before_it_cleans_up_is_completed(raw, tmp_path, monkeypatch):
    with killed_at_the_end(monkeypatch):
        convert_to(tmp_path, ToySource(raw))
    before = conversions.contents(tmp_path / "converted" / "1.0.0")
    assert conversions.contents(convert_to(tmp_path, ToySource(raw))) == before
    assert [path.name for path in (tmp_path / "converted").iterdir()] == ["1.0.0"]
    with pytest.raises(FileExistsError):
        convert_to(tmp_path, ToySource(raw))


@pytest.mark.slow
@pytest.mark.parametrize("by_class", [True, False])
def test_staged_files_of_a_complete_dataset_are_discarded(raw, tmp_path, monkeypatch, by_class):
    """The dataset stays."""
    with killed_at_the_end(monkeypatch):
        convert(ToySource(raw), name="rlds_toy_two", data_dir=tmp_path)
    if by_class:
        RldsToyTwo(path=raw, data_dir=tmp_path).download_and_prepare()
    else:
        with pytest.raises(FileExistsError):
            convert(ToySource(raw, 9), name="rlds_toy_two", data_dir=tmp_path)
    assert [path.name for path in (tmp_path / "rlds_toy_two").iterdir()] == ["1.0.0"]


# --- The options of TFDS -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option", [{"max_examples_per_split": 3}, {"ignore_duplicates": True}], ids=str
)
def test_options_that_would_lose_episodes_are_refused(raw, tmp_path, option):
    with pytest.raises(ValueError, match=f"{next(iter(option))} is not supported"):
        convert_to(tmp_path, ToySource(raw), download_config=config(**option))


def test_updating_the_info_keeps_the_metadata(raw, tmp_path):
    RldsToyTwo(path=raw, data_dir=tmp_path).download_and_prepare()
    directory = tmp_path / "rlds_toy_two" / "1.0.0"
    before = (directory / "metadata.json").read_text()
    RldsToyTwo(data_dir=tmp_path).download_and_prepare(
        download_config=config(download_mode=tfds.GenerateMode.UPDATE_DATASET_INFO)
    )
    assert (directory / "metadata.json").read_text() == before
    assert RldsToyTwo(data_dir=tmp_path).info.splits["train"].num_examples == 10


# --- Raw data that changes while it is read ------------------------------------------------------


class Changing(ToySource):
    """A source whose file changes before the episode 6."""

    change = staticmethod(lambda path: None)

    def read(self, split, index, fields=None, rows=slice(None)):
        if index == 6:
            self.change(self.path)
        return super().read(split, index)


def write_at_same_time(path, content):
    before = path.stat()
    path.write_text(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = {
    "longer": lambda path: path.write_text("longer"),
    "another": lambda path: shutil.copy(path, path.with_name("new")).rename(path),
    "same size and time": lambda path: write_at_same_time(path, "yot"),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("case", CHANGES)
def test_raw_data_that_changes_during_reading_is_refused(raw, tmp_path, case):
    source = Changing(raw)
    source.change = lambda path: CHANGES[case](Path(path))
    skip_damaged = case in ("longer", "gone")
    with pytest.raises(
        SourceChangedError, match=r"toy\.raw: the file was (changed|removed)"
    ) as caught:
        convert_to(tmp_path, source, skip_damaged=skip_damaged)
    assert not getattr(caught.value, "__notes__", [])
    assert not list(tmp_path.glob("converted/*"))


def test_raw_data_that_may_grow_may_not_change_otherwise(raw, tmp_path):
    class Growing(Changing):
        may_grow = True

    source = Growing(raw)
    source.change = lambda path: Path(path).write_text("toy, and more")
    convert_to(tmp_path / "a", source)
    source.change = lambda path: Path(path).write_text("another toy")
    with pytest.raises(SourceChangedError):
        convert_to(tmp_path / "b", source)


def test_a_large_file_is_compared_in_samples(tmp_path):
    path = tmp_path / "large"
    path.write_bytes(bytes(3_000_000))
    before = state_of(path)
    check_unchanged([before])
    for position in (0, 2_999_999):
        with path.open("r+b") as file:
            file.seek(position)
            file.write(b"\1")
        os.utime(path, ns=(0, before.version[1]))
        assert state_of(path)[:3] == before[:3]
        with pytest.raises(SourceChangedError, match="large: the file was changed or replaced"):
            check_unchanged([before])
