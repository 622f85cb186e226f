import dataclasses
import json
import os
import shutil
import struct
import threading
import warnings

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tfds_files
from tfds_files import (
    NOT_DIRECT,
    DamagedFileError,
    Dataset,
    ExampleDecoder,
    ExampleEncoder,
    Features,
    Image,
    Sequence,
    Tensor,
    UnsupportedFileError,
    index_files,
    indexing,
)
from tfds_files.record_files import write_records
from tfds_files.wire import delimited, encode_varints

INT, FLOAT, TEXT = np.dtype(np.int64), np.dtype(np.float32), np.dtype(object)
DTYPES = ["bool", "int8", "uint8", "int64", "uint64", "float16", "float32", "float64"]


def nest_steps(steps, **episode_features):
    return Features(
        features={"steps": Dataset(feature=Features(features=steps)), **episode_features}
    )


def write_shard(folder, examples):
    path = folder / "it.tfrecord"
    write_records(path, "tfrecord", examples)
    return path


def look_up(columns, name):
    for key in name.split("/"):
        columns = columns[key]
    return columns


def read_elements(index, field, example):
    """Returns the elements of a field by the index, or None if they have to be decoded."""
    column, raw = index.fields.index(field), np.fromfile(index.path, np.uint8)
    layout = index.layouts[column]
    if index.starts[example, column] == NOT_DIRECT:
        return None
    count = int(index.num_elements[example]) if layout.in_sequence else 1
    if layout.kind == "strings":
        indices = np.arange(count)
        begins, ends = index.find_strings(field, np.full(count, example), indices)
        return [raw[begin:end].tobytes() for begin, end in zip(begins, ends)]
    stride, remainder = divmod(int(index.sizes[example, column]), count)
    assert remainder == 0
    first = int(index.offsets[example]) + int(index.starts[example, column])
    rows = [raw[first + i * stride :][: layout.width] for i in range(count)]
    return np.stack(rows).view(layout.dtype)


# --- Indexed elements equal decoded elements.


@st.composite
def fields(draw):
    """Draws a field, a flag that its elements are direct, and a strategy for the elements."""
    kind = draw(st.sampled_from(["tensor", "tensor", "text", "image", "ragged", "dynamic"]))
    if kind == "text":
        return Tensor(dtype=TEXT), True, st.binary(max_size=3)
    if kind == "image":
        pixels = hnp.arrays(np.uint8, (2, 9, 3))
        return Image(shape=(2, 9, 3), dtype=np.dtype(np.uint8)), True, pixels
    if kind == "ragged":
        rows = hnp.arrays(np.int64, st.integers(0, 3), elements=st.integers(0, 9))
        return Sequence(feature=Tensor(dtype=INT)), False, rows
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    if kind == "dynamic":
        arrays = hnp.arrays(dtype, st.tuples(st.integers(0, 2), st.integers(1, 3)))
        return Tensor(dtype=dtype, shape=(None, None), encoding="zlib"), False, arrays
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=2, max_side=3))
    encoding = draw(st.sampled_from(["none", "bytes", "zlib"]))
    elements = None
    if dtype.kind in "iu" and draw(st.booleans()):
        elements = st.integers(0, 127)
    is_direct = encoding == "bytes" or (
        encoding == "none" and (dtype.name in ("float32", "bool") or elements is not None)
    )
    arrays = hnp.arrays(dtype, shape, elements=elements)
    return Tensor(dtype=dtype, shape=shape, encoding=encoding), is_direct, arrays


def make_column(rows, feature):
    if isinstance(feature, Sequence):
        lengths = np.array([len(row) for row in rows], np.int64)
        return tfds_files.RaggedColumn(np.concatenate([np.zeros(0, INT), *rows]), lengths)
    if isinstance(feature, Tensor) and (feature.is_text or None in feature.shape):
        column = np.empty(len(rows), object)
        column[:] = rows
        return column
    if not rows:
        return np.zeros((0, *feature.shape), feature.dtype)
    return np.stack(rows)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_direct_fields_equal_decoded_fields(tmp_path_factory, data):
    drawn = data.draw(st.lists(fields(), min_size=1, max_size=4))
    episode_fields = data.draw(
        st.lists(fields().filter(lambda f: not isinstance(f[0], Sequence)), max_size=2)
    )
    features = nest_steps(
        {f"step {i}": field for i, (field, _, _) in enumerate(drawn)},
        **{f"other {i}": field for i, (field, _, _) in enumerate(episode_fields)},
    )
    examples, encoder = [], ExampleEncoder(features)
    for length in data.draw(st.lists(st.integers(0, 5), max_size=4)):
        steps = {
            f"step {i}": make_column([data.draw(rows) for _ in range(length)], field)
            for i, (field, _, rows) in enumerate(drawn)
        }
        values = {f"other {i}": data.draw(rows) for i, (_, _, rows) in enumerate(episode_fields)}
        examples.append(({"steps": steps, **values}, length))
    path = write_shard(tmp_path_factory.mktemp("shard"), [encoder.encode(e) for e, _ in examples])
    index = tfds_files.index_shard(path, features, verify=True)
    assert index.num_elements.tolist() == [length for _, length in examples]
    index_files.save(index)
    loaded = index_files.load(str(path), index.sequence, index.layouts)
    decoder = ExampleDecoder(features)
    for row, (example, length) in enumerate(examples):
        decoded = decoder.decode(encoder.encode(example))
        is_direct = {f"steps/step {i}": d and length > 0 for i, (_, d, _) in enumerate(drawn)}
        is_direct |= {f"other {i}": direct for i, (_, direct, _) in enumerate(episode_fields)}
        stored = tfds_files.parse_example(encoder.encode(example))
        for name, expected in is_direct.items():
            actual = read_elements(loaded, name, row)
            values = look_up(decoded, name)
            layout = index.layouts[index.fields.index(name)]
            if not expected:
                # Small integers are direct as well.
                assert actual is None or layout.kind == "integers", name
            if layout.kind == "strings":
                assert actual is None or actual == stored[name]
            elif actual is not None:
                values = np.asarray(values)
                assert actual.astype(values.dtype).tobytes() == values.tobytes()
                if layout.kind == "integers":
                    last = index.last_bytes[row, index.fields.index(name)]
                    assert last == np.atleast_1d(values).astype(np.uint8).flat[-1]
            if expected:
                assert actual is not None, name


# --- Files of other writers.


def encode_example(**lists):
    """Encodes an example from the tag and the content of each list."""
    entries = []
    for name, (tag, content) in lists.items():
        feature = b"" if tag is None else delimited(tag, content)
        name = name.replace("__", "/").encode()
        entries.append(delimited(b"\n", delimited(b"\n", name) + delimited(b"\x12", feature)))
    return delimited(b"\n", b"".join(entries))


BYTES, FLOATS, INTS = b"\n", b"\x12", b"\x1a"
FLAGS = INTS, delimited(b"\n", b"\1\0\0")


def pack(*values):
    return INTS, delimited(b"\n", encode_varints(np.array(values))[0])


ODD = {
    "unpacked integers": (INTS, b"\x08\1\x08\2\x08\3"),
    "integers in two pieces": (INTS, delimited(b"\n", b"\1") + delimited(b"\n", b"\2\3")),
    "minus one in ten bytes": pack(-1, 2, 3),
    "ten bytes that might be ten steps": pack(*[1] * 9, -1),
    "numbers of two bytes": pack(1, 200, 3),
    "unpacked floats": (FLOATS, b"\x0d" + bytes(4)),
    "floats where integers are": (FLOATS, delimited(b"\n", bytes(12))),
    "an empty list": (INTS, b""),
    "an empty piece": (INTS, delimited(b"\n", b"")),
    "no list": (None, b""),
    "fewer than there are steps": pack(1, 2),
}


def test_malformed_lists_are_left_to_the_decoder(tmp_path):
    features = nest_steps({"flag": Tensor(dtype=np.dtype(bool)), "x": Tensor(dtype=INT)})
    examples = [encode_example(steps__flag=FLAGS, steps__x=odd) for odd in ODD.values()]
    examples += [encode_example(steps__flag=FLAGS), encode_example(steps__x=pack(7, 8, 9))]
    index = tfds_files.index_shard(write_shard(tmp_path, examples), features)
    assert index.num_elements.tolist() == [3] * len(examples)
    for row in range(len(examples) - 1):
        assert read_elements(index, "steps/x", row) is None, row
        flags = read_elements(index, "steps/flag", row)
        assert flags is None or flags.ravel().tolist() == [1, 0, 0]
    assert read_elements(index, "steps/x", len(examples) - 1).ravel().tolist() == [7, 8, 9]
    assert index.last_bytes[-1].tolist() == [255, 9]


def test_fields_in_any_order_and_unknown_fields_are_indexed(tmp_path):
    features = nest_steps({"a": Tensor(dtype=INT), "b": Tensor(dtype=FLOAT)}, id=Tensor(dtype=INT))
    lists = {
        "steps__a": pack(1, 2),
        "steps__b": (FLOATS, delimited(b"\n", np.float32([3, 4]).tobytes())),
        "id": pack(5),
        "steps__c": pack(300, 9),
        "more than any name here": (BYTES, delimited(b"\n", b"x" * 200)),
    }
    names, rng = list(lists), np.random.default_rng(0)
    examples = []
    for row in range(40):
        order = rng.permutation(names)
        examples.append(
            encode_example(**{name: lists[name] for name in order}, **{f"{row % 4}": FLAGS})
        )
    examples.append(encode_example(**lists) + b"\x18\1")  # A field that examples do not have.
    examples.append(delimited(b"\n", b"") + encode_example(**lists))
    index = tfds_files.index_shard(write_shard(tmp_path, examples), features)
    assert index.fields == ("id", "steps/a", "steps/b")
    assert index.num_elements.tolist() == [2] * len(examples)
    for row in range(40):
        assert read_elements(index, "steps/a", row).ravel().tolist() == [1, 2]
        assert read_elements(index, "steps/b", row).ravel().tolist() == [3, 4]
        assert read_elements(index, "id", row).ravel().tolist() == [5]
    assert (index.starts[40:] == NOT_DIRECT).all()
    examples = [encode_example(**lists, **{f"{row}": FLAGS}) for row in range(40)]
    index = tfds_files.index_shard(write_shard(tmp_path, examples), features)
    assert index.num_elements.tolist() == [2] * 40


def test_the_last_of_two_lists_of_a_name_counts_as_in_the_decoder(tmp_path):
    features = nest_steps({"x": Tensor(dtype=INT)})
    first, second = (encode_example(steps__x=pack(*values)) for values in ([1, 2], [3, 4, 5]))
    both = delimited(b"\n", first[2:] + second[2:])
    index = tfds_files.index_shard(write_shard(tmp_path, [both]), features)
    expected = ExampleDecoder(features).decode(both)["steps"]["x"]
    assert read_elements(index, "steps/x", 0).ravel().tolist() == expected.tolist() == [3, 4, 5]


def test_strings_with_length_prefixes_of_all_sizes_are_indexed(tmp_path):
    features = nest_steps({"x": Image(shape=(None, None, 3), dtype=np.dtype(np.uint8))})
    sizes = [0, 1, 127, 128, 129, 16383, 16384, 16385, 1 << 21, (1 << 21) - 1, 5]
    files = [bytes([i]) * size for i, size in enumerate(sizes)]
    content = b"".join(delimited(b"\n", file) for file in files)
    padded = b"\n\x85\x00" + b"12345" + content  # A length in more bytes than needed.
    cut = content[:-3]
    examples = [encode_example(steps__x=(BYTES, c)) for c in (content, padded, cut, content)]
    with pytest.raises(DamagedFileError, match=r"record 2, at byte .*: not a tf.train.Example"):
        tfds_files.index_shard(write_shard(tmp_path, examples), features)
    index = tfds_files.index_shard(write_shard(tmp_path, [*examples[:2], examples[3]]), features)
    assert index.num_elements.tolist() == [len(files), len(files) + 1, len(files)]
    assert read_elements(index, "steps/x", 0) == files
    assert read_elements(index, "steps/x", 1) is None
    assert read_elements(index[2:], "steps/x", 0) == files


def test_examples_of_which_no_field_is_direct_are_counted(tmp_path):
    features = nest_steps(
        {
            "text": Tensor(dtype=TEXT),
            "ragged": Sequence(feature=Tensor(dtype=INT)),
            "zlib": Tensor(dtype=INT, shape=(2,), encoding="zlib"),
            "dynamic": Tensor(dtype=INT, shape=(None, None), encoding="zlib"),
        }
    )
    steps = {
        "text": make_column([b"a", b"", b"bc"], Tensor(dtype=TEXT)),
        "ragged": tfds_files.RaggedColumn(np.arange(4), np.array([0, 3, 1])),
        "zlib": np.zeros((3, 2), INT),
        "dynamic": make_column([np.zeros((1, i), INT) for i in range(3)], Tensor(dtype=TEXT)),
    }
    full = ExampleEncoder(features).encode({"steps": steps})
    examples = [full, b""]
    for name in ("text", "ragged", "zlib", "dynamic"):
        field_features = nest_steps({name: features["steps"].feature[name]})
        examples.append(ExampleEncoder(field_features).encode({"steps": {name: steps[name]}}))
    index = tfds_files.index_shard(write_shard(tmp_path, examples), features)
    assert index.num_elements.tolist() == [3, 0, 3, 3, 3, 3]


# --- Files of indexes.


FEATURES = nest_steps(
    {
        "image": Image(shape=(None, None, 3), dtype=np.dtype(np.uint8)),
        "is_last": Tensor(dtype=np.dtype(bool)),
        "state": Tensor(dtype=np.dtype(np.float64), shape=(2,), encoding="bytes"),
        "text": Tensor(dtype=TEXT),
        "x": Tensor(dtype=FLOAT, shape=(3,)),
    },
    known=Tensor(dtype=np.dtype(bool)),
)


def make_episode(length, seed=0):
    rng = np.random.default_rng(seed)
    image = np.empty(length, object)
    image[:] = [rng.integers(0, 255, (2, i + 1, 3), np.uint8) for i in range(length)]
    steps = {
        "image": image,
        "is_last": np.arange(length) == length - 1,
        "state": rng.normal(size=(length, 2)),
        "text": np.array([b"a" * i for i in range(length)], object),
        "x": rng.normal(size=(length, 3)).astype(FLOAT),
    }
    return {"steps": steps, "known": True}


def make_dataset(folder, lengths=(2, 0, 3, 1, 4), per_shard=2):
    """Writes a dataset that is too small for indexes."""
    with tfds_files.append_to(folder, FEATURES, "it", max_examples_per_shard=per_shard) as writer:
        for seed, length in enumerate(lengths):
            writer.add(make_episode(length, seed))
    return tfds_files.open_folder(folder)["train"]


def list_indexes(folder):
    return sorted(path.name for path in (folder / ".feeds").glob("*"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RLDS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "dataset"


@pytest.fixture
def scanned(monkeypatch):
    """The names of the scanned shards."""
    paths = []
    scan = indexing.index_shard
    monkeypatch.setattr(
        indexing,
        "index_shard",
        lambda path, *args, **kwargs: (
            paths.append(os.path.basename(path)) or scan(path, *args, **kwargs)
        ),
    )
    return paths


SHARDS = [f"it-train.tfrecord-{i:05}" for i in range(3)]


def test_indexes_are_saved_and_used_until_the_shard_changes(folder, scanned):
    split, calls = make_dataset(folder), []
    indexes = tfds_files.open_indexes(split, progress=lambda *done: calls.append(done))
    assert calls == [(1, 3), (2, 3), (3, 3)]
    assert scanned == SHARDS
    assert list_indexes(folder) == [f"{name}.index" for name in SHARDS]
    assert [index.num_elements.tolist() for index in indexes] == [[2, 0], [3, 1], [4]]
    reopened = tfds_files.open_indexes(split)
    assert scanned == SHARDS
    for old, new in zip(indexes, reopened):
        for field in dataclasses.fields(old):
            np.testing.assert_equal(getattr(new, field.name), getattr(old, field.name))
    assert not any(index.starts.flags.owndata for index in reopened)  # The file is mapped.
    selection = tfds_files.open_indexes(tfds_files.open_folder(folder)["train[1:4]"])
    assert [index.num_elements.tolist() for index in selection] == [[0], [3, 1]]
    assert read_elements(selection[1], "steps/is_last", 0).ravel().tolist() == [0, 0, 1]
    assert len(read_elements(selection[1], "steps/image", 1)) == 1
    assert tfds_files.open_indexes(split, verify=True)[0].is_verified
    assert scanned == SHARDS * 2
    tfds_files.open_indexes(split, verify=True)
    assert scanned == SHARDS * 2

    shard = folder / SHARDS[0]
    os.utime(shard, ns=(1, 1))  # As in a copy of the dataset.
    tfds_files.open_indexes(split)
    assert scanned == SHARDS * 2
    records = list(tfds_files.record_files.valid_records(shard))
    write_records(shard, "tfrecord", reversed(records))
    assert [i.num_elements.tolist() for i in tfds_files.open_indexes(split)] == [
        [0, 2],
        [3, 1],
        [4],
    ]
    assert scanned == SHARDS * 2 + SHARDS[:1]


def test_writers_save_indexes_if_they_can(folder, scanned, monkeypatch):
    monkeypatch.setattr(indexing, "_MIN_INDEXED_BYTES", 0)
    split = make_dataset(folder)
    assert [len(index) for index in tfds_files.open_indexes(split)] == [2, 2, 1]
    with tfds_files.append_to(folder, FEATURES, "it") as writer:
        writer.add(make_episode(1))
        (folder / ".feeds" / f"{SHARDS[2][:-1]}3.index").mkdir()
    assert len(tfds_files.open_folder(folder)["train"]) == 6
    assert scanned == [*SHARDS, f"{SHARDS[2][:-1]}3"]


def test_links_and_pipes_are_not_used_for_indexes(folder, scanned):
    """Files could be written elsewhere, and readers could wait forever."""
    split = make_dataset(folder, [1])
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    (folder / ".feeds").symlink_to(elsewhere)
    tfds_files.open_indexes(split)
    assert not list(elsewhere.iterdir())
    (folder / ".feeds").unlink()
    (folder / ".feeds").mkdir()
    shutil.rmtree(folder.parent / "cache")
    os.mkfifo(folder / ".feeds" / f"{SHARDS[0]}.index")
    tfds_files.open_indexes(split)
    assert scanned == SHARDS[:1] * 2


def test_changed_features_need_a_new_index(folder, scanned):
    split = make_dataset(folder, [2])
    tfds_files.open_indexes(split)
    features = json.loads((folder / "features.json").read_text())
    steps = features["featuresDict"]["features"]["steps"]["sequence"]["feature"]
    steps["featuresDict"]["features"]["x"]["tensor"]["dtype"] = "float16"
    (folder / "features.json").write_text(json.dumps(features))
    (index,) = tfds_files.open_indexes(tfds_files.open_folder(folder)["train"])
    assert len(scanned) == 2
    assert read_elements(index, "steps/x", 0) is None


def test_an_interrupted_build_is_resumed(folder, scanned):
    split = make_dataset(folder)

    def interrupt(done, _):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tfds_files.open_indexes(split, progress=interrupt)
    tfds_files.open_indexes(split)
    assert scanned == SHARDS


@pytest.mark.slow
def test_several_threads_build_the_same_indexes(folder):
    split = make_dataset(folder, [3] * 20, per_shard=1)
    actual = [[] for _ in range(3)]
    threads = [
        threading.Thread(target=lambda result=result: result.extend(tfds_files.open_indexes(split)))
        for result in actual
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all([len(index) for index in result] == [1] * 20 for result in actual)
    assert len(list_indexes(folder)) == 20


def test_the_cache_has_the_index_if_the_dataset_is_read_only(folder, scanned):
    split = make_dataset(folder, [2])
    (folder / ".feeds").write_text("in the way, as a file system without write access")
    for _ in range(2):
        (index,) = tfds_files.open_indexes(split)
        assert index.num_elements.tolist() == [2]
    assert scanned == SHARDS[:1]
    assert len(list((folder.parent / "cache").rglob("*.index"))) == 1
    shutil.rmtree(folder.parent / "cache")
    (folder.parent / "cache").write_text("in the way, too")
    with pytest.warns(UserWarning, match="cannot be saved, so it is built each time"):
        tfds_files.open_indexes(split)
    assert scanned == SHARDS[:1] * 2


def test_damaged_and_compressed_shards_have_no_index(folder):
    split = make_dataset(folder, [2])
    shard = folder / SHARDS[0]
    content = shard.read_bytes()
    shard.write_bytes(b"\x1f\x8b" + content)
    with pytest.raises(UnsupportedFileError, match="the whole file is compressed"):
        tfds_files.open_indexes(split)
    shard.write_bytes(content * 2)
    with pytest.raises(
        DamagedFileError, match=r"00000: 2 records, but dataset_info.json declares 1"
    ):
        tfds_files.open_indexes(split)
    shard.write_bytes(content + content[:-1])
    with pytest.raises(
        DamagedFileError, match=f"the file ends within the record at byte {len(content)}"
    ):
        tfds_files.open_indexes(split)
    shard.write_bytes(content + b"\1" + content)
    with pytest.raises(DamagedFileError, match=f"no record begins at byte {len(content)}"):
        tfds_files.open_indexes(split)
    shard.write_bytes(content[:-10] + b"?" + content[-9:])
    with pytest.raises(DamagedFileError, match="the record at byte 0 does not match its checksum"):
        tfds_files.open_indexes(split, verify=True)
    assert not list_indexes(folder)
    info = json.loads((folder / "dataset_info.json").read_text())
    (folder / "dataset_info.json").write_text(json.dumps({**info, "fileFormat": "array_record"}))
    with pytest.raises(UnsupportedFileError, match="have the format 'array_record'"):
        tfds_files.open_indexes(tfds_files.open_folder(folder)["train"])
    remote = tfds_files.folder.RecordRange("gs://bucket/it/it-train", None, 0, 1)
    with pytest.raises(UnsupportedFileError, match=r"gs://bucket.* is not on this machine"):
        tfds_files.open_indexes(tfds_files.Split("train", [remote], None))


def assert_bounded(index):
    """Checks that all addresses of an index are in the file."""
    size = os.stat(index.path).st_size
    for example in range(len(index)):
        begin, end = index.offsets[example], index.offsets[example] + index.lengths[example]
        assert 0 <= begin <= end <= size
        assert index.num_elements[example] <= size
        for column, layout in enumerate(index.layouts):
            if index.starts[example, column] == NOT_DIRECT:
                continue
            count = int(index.num_elements[example]) if layout.in_sequence else 1
            first = int(begin) + int(index.starts[example, column])
            if layout.kind == "strings":
                bounds = index.find_strings(layout.name, np.full(count, example), np.arange(count))
                assert (bounds[0] <= bounds[1]).all()
                assert (bounds[0] >= begin).all()
                assert (bounds[1] <= end).all()
            else:
                stride = int(index.sizes[example, column]) // count
                assert begin <= first <= first + (count - 1) * stride + layout.width <= end


def test_a_damaged_index_has_no_address_outside_the_file(folder):
    """Neither after random damage nor after a manipulation with a valid checksum."""
    split = make_dataset(folder, [2, 1])
    (index,) = tfds_files.open_indexes(split)
    (path,) = (folder / ".feeds").iterdir()
    content = path.read_bytes()
    sequence, layouts = index.sequence, index.layouts
    shard, num_loaded = index.path, 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for position in range(0, len(content), 3):
            damaged = bytearray(content)
            damaged[position] ^= 1 << position % 8
            if position % 4 == 0:
                path.write_bytes(damaged)
                assert index_files.load(shard, sequence, layouts) is None
            damaged[-4:] = struct.pack("<I", google_crc32c.value(bytes(damaged[:-4])))
            path.write_bytes(damaged)
            actual = index_files.load(shard, sequence, layouts)
            if actual is not None:
                num_loaded += 1
                assert_bounded(actual)
        for size in range(0, len(content), 40):
            path.write_bytes(content[:size])
            assert index_files.load(shard, sequence, layouts) is None
    assert num_loaded > 30  # Some damage is harmless, such as wrong last flags.
    (rebuilt,) = tfds_files.open_indexes(split)
    assert (rebuilt.starts == index.starts).all()
    assert path.read_bytes() == content


@settings(max_examples=3 * settings().max_examples)
@given(st.data())
def test_a_damaged_shard_has_no_address_outside_its_records(tmp_path_factory, data):
    content = bytearray(ExampleEncoder(FEATURES).encode(make_episode(2)))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    intact = ExampleEncoder(FEATURES).encode(make_episode(3))
    path = write_shard(tmp_path_factory.mktemp("shard"), [intact, bytes(content), intact])
    try:
        index = tfds_files.index_shard(path, FEATURES)
    except DamagedFileError:
        with pytest.raises(DamagedFileError, match="record 1, at byte"):
            tfds_files.index_shard(path, FEATURES)
        return
    assert_bounded(index)
    index_files._check_index(index, os.stat(path).st_size)
    for example in (0, 2):
        assert read_elements(index, "steps/is_last", example).ravel().tolist() == [0, 0, 1]
    for column, layout in enumerate(index.layouts):
        if index.starts[1, column] != NOT_DIRECT and layout.kind == "floats":
            actual = read_elements(index, layout.name, 1)
            expected = ExampleDecoder(FEATURES, [layout.name]).decode(bytes(content))
            assert look_up(expected, layout.name).tobytes() == actual.tobytes()


def test_an_empty_shard_and_features_without_a_sequence_are_indexed(tmp_path):
    features = Features(features={"x": Tensor(dtype=FLOAT, shape=(2,))})
    index = tfds_files.index_shard(write_shard(tmp_path, []), features)
    assert len(index) == 0
    index_files.save(index)
    assert index_files.load(index.path, "", index.layouts) is not None
    example = ExampleEncoder(features).encode({"x": np.float32([1, 2])})
    index = tfds_files.index_shard(write_shard(tmp_path, [example]), features)
    assert index.sequence == ""
    assert read_elements(index, "x", 0).ravel().tolist() == [1, 2]
