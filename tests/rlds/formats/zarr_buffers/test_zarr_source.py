"""Replay buffers in Zarr, compared with plain loops over arrays read by the zarr library."""

import json
import os
import pickle
import shutil
import zlib
from pathlib import Path

import imagecodecs
import numcodecs
import numpy as np
import pytest
import raw_zarr
import videos
import zarr

import rlds.sources
from rlds.sources import SourceError

ZarrSource = rlds.sources.formats()["zarr"].load()


def check_rows(episodes, raw, ends):
    """Compares all rows of all episodes with those of the arrays; returns the compared names."""
    names = set()
    for index, (begin, end) in enumerate(zip([0, *ends], ends)):
        episode = episodes[index]
        assert episode.key == f"episode_{index}"
        assert (episode.origin.begin, episode.origin.end) == (begin, end)
        assert episode.truncated
        assert not episode.final_observation_known
        steps = {**episode.steps["observation"], **episode.steps}
        for name in raw.keys() & steps.keys():
            assert steps[name].dtype == raw[name].dtype
            np.testing.assert_array_equal(steps[name], raw[name][begin:end])
            names.add(name)
        for name in raw.keys() & episode.metadata.keys():
            np.testing.assert_array_equal(episode.metadata[name], raw[name][begin])
            names.add(name)
    return names


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pusht.zarr", "pusht.zarr.zip"])
def test_buffers_of_diffusion_policy_are_read(tmp_path, name):
    path = raw_zarr.write_pusht(tmp_path / name)
    episodes = rlds.sources.open(path)
    assert episodes.format == "zarr"
    raw = raw_zarr.pusht()
    assert check_rows(episodes, raw, [4, 6, 12]) == {*raw}
    assert [episode.metadata["meta"]["seeds"] for episode in episodes] == [7, 8, 9]
    assert all(episode.complete for episode in episodes)
    actual = episodes.metadata["zarr"]
    assert actual["values"] == {
        "meta/joints": {"dtype": "<f8", "values": [0, 1, 2, 3]},
        "meta/rate": {"dtype": "<f8", "values": 10},
    }
    assert actual["attributes"]["data/action"] == {"frame": "world"}
    assert actual["attributes"][""] == {"made by": "somebody"}
    assert list(episodes.source.capabilities.faults("train")) == []


def test_rows_of_an_aborted_episode_become_an_incomplete_episode(tmp_path):
    path = raw_zarr.write_pusht(tmp_path / "replay_buffer.zarr", aborted=3)
    episodes = rlds.sources.open(tmp_path)  # The folder of the buffer and of videos.
    assert check_rows(episodes, raw_zarr.pusht(aborted=3), [4, 6, 12, 15])
    assert [episode.complete for episode in episodes] == [True] * 3 + [False]
    assert episodes.source.capabilities.totals("train") == {"rows": 15}
    (path / "data" / "img" / ".zarray").write_text(
        (path / "data" / "img" / ".zarray").read_text().replace("15,", "14,", 1)
    )
    episodes = rlds.sources.open(path)
    assert episodes[3].num_steps == 2
    faults = [str(fault) for fault in episodes.source.capabilities.faults("train")]
    assert len(faults) == 6
    assert "row 14, field 'data/action': 15 rows, but other arrays have 14" in faults[0]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "codec"), [("a.zarr", None), ("a.zarr.zip", raw_zarr.jpeg2k())])
def test_encoded_frames_are_read_as_files(tmp_path, name, codec):
    raw, path = raw_zarr.umi(), raw_zarr.write_umi(tmp_path / name, codec=codec)
    episodes = rlds.sources.open(path)
    assert "action" not in episodes.spec["steps"]
    assert check_rows(episodes, raw, [4, 6, 12]) == raw.keys() - {"camera0_rgb"}
    frames = raw_zarr.read_all(path)["data/camera0_rgb"]
    assert 0 < np.abs(frames.astype(int) - raw["camera0_rgb"]).mean() < 20  # It is lossy.
    files = np.concatenate([episode.steps["chunks"]["camera0_rgb"] for episode in episodes])
    for row, file in enumerate(files):
        np.testing.assert_array_equal(imagecodecs.imread(file), frames[row])
        if path.is_dir():
            assert file == (path / f"data/camera0_rgb/{row}.0.0.0").read_bytes()
    decoded = rlds.sources.open(path, images="frames")
    assert "chunks" not in decoded.spec["steps"]
    assert "camera0_rgb" in check_rows(decoded, {"camera0_rgb": frames}, [4, 6, 12])


def test_videos_in_the_folder_are_matched_with_the_rows(tmp_path):
    """Rows at 10 Hz, frames at 30; the last video ends before its episode."""
    raw_zarr.write_pusht(tmp_path / "replay_buffer.zarr")
    lengths = (12, 9, 8)
    for index, length in enumerate(lengths):
        folder = tmp_path / "videos" / str(index)
        folder.mkdir(parents=True)
        for camera in (0, 10):
            data = videos.encoded(num_frames=length, seed=camera)
            (folder / f"{camera}.mp4").write_bytes(data)
    episodes = rlds.sources.open(tmp_path)
    for episode, length in zip(episodes, lengths):
        for camera in (0, 10):
            actual = episode.metadata["video"]["observation"][f"camera_{camera}"]
            assert actual["clip"] == videos.encoded(num_frames=length, seed=camera)
            expected = [min(3 * row, length - 1) for row in range(episode.num_steps)]
            assert (actual["frames"] - actual["first"]).tolist() == expected
    pixels = rlds.sources.open(tmp_path, video="frames").columns(2, ["observation/camera_10"])
    expected = videos.decoded(videos.encoded(num_frames=8, seed=10))[[0, 3, 6, 7, 7, 7]]
    np.testing.assert_array_equal(pixels["observation"]["camera_10"], expected)
    inputs = {str(path) for path in episodes.source.inputs()}
    assert inputs == {str(path) for path in tmp_path.rglob("*") if path.is_file()}
    data = videos.encoded(num_frames=9, seed=10)
    (tmp_path / "videos" / "1" / "10.mp4").write_bytes(data[: len(data) // 2])
    with pytest.raises(SourceError, match=r"1.10\.mp4"):
        episodes[1]
    (tmp_path / "videos" / "1" / "10.mp4").unlink()
    with pytest.raises(SourceError, match=r"1.10\.mp4, episode 1: no such file"):
        episodes[1]
    assert episodes.columns(1, ["action"])["action"].shape == (2, 2)
    shutil.rmtree(tmp_path / "videos")
    (tmp_path / "videos").write_text("no folder")
    with pytest.raises(SourceError, match=r"replay_buffer\.zarr: cannot be read: NotADirectory"):
        rlds.sources.open(tmp_path, format="zarr")


def test_only_requested_rows_are_read(tmp_path):
    path = raw_zarr.write_pusht(tmp_path / "a.zarr")
    for row in (5, 6, 8):
        (path / f"data/img/{row}.0.0.0").write_bytes(b"spoilt")
    (path / "data/img/9.0.0.0").unlink()
    source = rlds.sources.open(path, missing_chunks="fill")
    episodes = pickle.loads(pickle.dumps(source))
    raw = raw_zarr.pusht()["img"]
    actual = episodes.columns(2, ["observation/img", "is_last"], 3, 9)
    np.testing.assert_array_equal(actual["observation"]["img"][1:], raw[10:])
    assert not actual["observation"]["img"][0].any()
    assert actual["is_last"].tolist() == [False, False, True]
    assert episodes.columns(2, ["action"], 1, 2)["action"].tolist() == [
        raw_zarr.pusht()["action"][7].tolist()
    ]
    with pytest.raises(SourceError, match=r"a\.zarr, episode episode_2, row 6, field 'data/img'"):
        episodes[2]
    assert episodes[0].num_steps == 4


def move_and_link(path, target):
    """Moves a file, and leaves a link to it."""
    path.rename(target)
    path.symlink_to(target)


MISSING = {
    "a chunk": lambda data: (data / "action/1.0").unlink(),
    "a link to nothing": lambda data: move_and_link(data / "action/1.0", data / "action/1,0"),
    "chunks with another separator": lambda data: (data / "action/1.0").rename(data / "action/1"),
    "a chunk of an image": lambda data: (data / "camera0_rgb/5.0.0.0").unlink(),
}


@pytest.mark.parametrize("case", MISSING)
def test_missing_chunks_are_reported(tmp_path, case):
    raw = {**raw_zarr.umi(), "action": raw_zarr.pusht()["action"]}
    images = {"camera0_rgb": raw_zarr.jpeg2k()}
    path = raw_zarr.write(
        tmp_path / "a.zarr", raw, compressors=images, chunks={"camera0_rgb": (1, 16, 24, 3)}
    )
    MISSING[case](path / "data")
    if "link" in case:
        assert rlds.sources.open(path)[1].num_steps == 2  # A link may leave the folder.
        (path / "data/action/1,0").unlink()
    episodes = rlds.sources.open(path)
    with pytest.raises(SourceError, match=r"does not exist|chunk .*(1|5\.0\.0)\.0 is missing"):
        episodes[1]
    assert episodes[0].num_steps == 4
    if "link" in case:
        return
    episode = rlds.sources.open(path, missing_chunks="fill")[1]
    if "image" in case:
        assert episode.steps["chunks"]["camera0_rgb"].tolist()[1] == b""
    else:
        assert not episode.steps["action"][1].any()


def test_zarr_3_leaves_out_chunks_of_zeros(tmp_path):
    rewards = np.zeros(12, "f4")
    path = raw_zarr.write(tmp_path / "a.zarr", {"reward": rewards}, write_empty_chunks=False)
    with pytest.raises(SourceError, match=r"only the fill_value \(0\.0\), pass"):
        rlds.sources.open(path)[0]
    assert not rlds.sources.open(path, missing_chunks="fill")[2].steps["reward"].any()


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["some", "consolidated", "in an archive"])
def test_an_array_whose_files_are_missing_is_refused(tmp_path, storage):
    """The buffer is not read without the array."""
    path = raw_zarr.write_pusht(tmp_path / "a_folder.zarr")
    if storage == "consolidated":
        zarr.consolidate_metadata(path, zarr_format=2)
        shutil.rmtree(path / "data/action")
    else:
        (path / "data/action/.zarray").unlink()
    if storage == "in an archive":
        path = Path(shutil.make_archive(str(tmp_path / "a.zarr"), "zip", path))
    with pytest.raises(SourceError, match=r"field 'data/action': \.zarray is missing"):
        ZarrSource(path)


def test_a_truncated_archive_is_refused(tmp_path):
    path = raw_zarr.write_pusht(tmp_path / "a.zarr.zip")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(SourceError, match=r"a\.zarr\.zip: cannot be read: BadZipFile"):
        rlds.sources.open(path)


def test_values_of_an_episode_are_constant(tmp_path):
    arrays = raw_zarr.umi()
    arrays["robot0_demo_end_pose"][5, 2] += 1
    path = raw_zarr.write(tmp_path / "a.zarr", arrays)
    episodes = rlds.sources.open(path)
    with pytest.raises(
        SourceError, match="row 5, field 'data/robot0_demo_end_pose': the value differs"
    ):
        episodes[1]
    assert episodes[2].metadata.keys() == {*raw_zarr.POSES}
    episodes = rlds.sources.open(path, per_episode=["robot0_demo_start_pose"])
    np.testing.assert_array_equal(
        episodes[1].steps["observation"]["robot0_demo_end_pose"],
        arrays["robot0_demo_end_pose"][4:6],
    )
    with pytest.raises(ValueError, match="per_episode: got 'poses', expected some of"):
        ZarrSource(path, per_episode=["poses"])


def test_text_big_endian_numbers_and_fortran_order_are_read(tmp_path):
    """As some writers of Zarr store them."""
    from numcodecs import GZip

    rng = np.random.default_rng(0)
    root = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    values = {
        "data/f": np.asfortranarray(rng.random((5, 3, 2))).astype(">f8"),
        "data/words": np.array(["pick", "it", "", "ü", "up"]),
        "data/long": np.array(["pick", "it", "", "ü", "up"], object),
        "meta/episode_ends": np.array([2, 5]),
    }
    for name, array in values.items():
        order = "F" if name == "data/f" else "C"
        dtype = str if array.dtype == object else array.dtype
        config = {"compressors": GZip()} if name != "data/long" else {}
        stored = root.create_array(
            name,
            shape=array.shape,
            chunks=(2, *array.shape[1:]),
            dtype=dtype,
            order=order,
            config={"write_empty_chunks": True},
            **config,
        )
        stored[:] = array
    episode = rlds.sources.open(tmp_path / "a.zarr")[1]
    actual = episode.steps["observation"]
    np.testing.assert_array_equal(actual["f"], values["data/f"][2:])
    assert actual["f"].dtype == np.float64
    assert actual["words"].tolist() == actual["long"].tolist() == ["", "ü", "up"]


@pytest.mark.parametrize(
    ("dtype", "codec", "values"),
    [
        ("<U4", "vlen-utf8", ["pick", "it", "", "ü", "up", ""]),
        ("|S3", "vlen-bytes", [b"pi", b"it", b"", b"\xff", b"up", b""]),
    ],
)
def test_fixed_length_text_of_zarr_3_0_is_read(tmp_path, dtype, codec, values):
    path = raw_zarr.write_pusht(tmp_path / "a.zarr", lengths=(2, 3))
    folder = path / "data/words"
    folder.mkdir()
    metadata = {
        "shape": [5],
        "chunks": [2],
        "fill_value": "",
        "order": "C",
        "filters": [{"id": codec}],
        "dimension_separator": ".",
        "compressor": None,
        "zarr_format": 2,
        "dtype": dtype,
    }
    (folder / ".zarray").write_text(json.dumps(metadata))
    encode = numcodecs.get_codec({"id": codec}).encode
    for index in range(3):
        chunk = np.array(values[2 * index : 2 * index + 2], object)
        (folder / str(index)).write_bytes(encode(chunk))
    actual = [episode.steps["observation"]["words"] for episode in rlds.sources.open(path)]
    assert np.concatenate(actual).tolist() == values[:5]
    text = (folder / ".zarray").read_text()
    (folder / ".zarray").write_text(text.replace(dtype, "<i4"))
    with pytest.raises(SourceError, match=f"unsupported filters \\['{codec}'\\] on '<i4'"):
        rlds.sources.open(path)


DAMAGE = {
    "a pickle": ("data/action", '"filters": null', '"filters": [{"id": "pickle"}]', "pickle"),
    "a codec": (
        "data/action",
        '"blosc"',
        '"x"',
        "unsupported compressor 'x', expected one of blosc",
    ),
    "format 3": ("data/action", '"zarr_format": 2', '"zarr_format": 3', "zarr_format 3"),
    "no JSON": ("data/action", "{", "", "not valid JSON"),
    "chunks": ("data/action", "\n    5,", "\n    0,", "chunks"),
    "ends": ("meta/episode_ends", '"<i8"', '"<f8"', "float64 of shape"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_json_is_refused(tmp_path, case):
    path = raw_zarr.write_pusht(tmp_path / "a.zarr")
    name, old, new, message = DAMAGE[case]
    text = (path / name / ".zarray").read_text()
    assert old in text
    (path / name / ".zarray").write_text(text.replace(old, new, 1))
    with pytest.raises(SourceError, match=message):
        ZarrSource(path)


def test_rows_beyond_the_arrays_are_refused(tmp_path):
    """Rows without chunks take no memory."""
    path = raw_zarr.write_pusht(tmp_path / "a.zarr", lengths=(4, 2, 6))
    ends = path / "meta/episode_ends/0"
    ends.write_bytes(np.array([4, 6, 2**40], "<i8").tobytes())
    episodes = rlds.sources.open(path)
    assert episodes[1].num_steps == 2
    with pytest.raises(
        SourceError, match=r"episode_2.*ends at 1099511627776, but the arrays have 12 rows"
    ):
        episodes[2]
    for name in raw_zarr.pusht():
        file = path / "data" / name / ".zarray"
        file.write_text(file.read_text().replace("12", str(2**40), 1))
    with pytest.raises(SourceError, match=r"episode_2, row 10995.*is missing"):
        rlds.sources.open(path)[2]
    ends.write_bytes(np.array([4, 3, 6], "<i8").tobytes())
    with pytest.raises(SourceError, match=r"row 1.*3, expected at least"):
        rlds.sources.open(path)


def test_false_chunk_counts_and_sizes_are_refused(tmp_path):
    path = raw_zarr.write_pusht(tmp_path / "a.zarr")
    (path / "data/keypoint/0.0.0").write_bytes(zlib.compress(bytes(1 << 24)))
    with pytest.raises(SourceError, match=r"row 0, field 'data/keypoint': .* more than 160 bytes"):
        rlds.sources.open(path)[0]
    file = path / "data/action/.zarray"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"shape": [2**62, 2**62]}))
    with pytest.raises(SourceError, match=r"'data/action'.* more than 1,048,576 chunks of shape"):
        rlds.sources.open(path)


@pytest.mark.parametrize(
    ("name", "codec"),
    [("meta/episode_ends/0", ""), ("data/keypoint/0.0.0", "zlib"), ("data/action/.zarray", "")],
)
def test_a_huge_sparse_file_is_refused(tmp_path, name, codec):
    path = raw_zarr.write_pusht(tmp_path / "a.zarr")
    os.truncate(path / name, 1 << 40)  # Far too large to read.
    with pytest.raises(SourceError, match="the file has 1,099,511,627,776 bytes, expected at most"):
        rlds.sources.open(path)[0]


@pytest.mark.parametrize("count", [3, 2**32 - 1])
def test_false_text_counts_are_refused(tmp_path, count):
    root = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    for name, values in {
        "data/action": np.ones(4),
        "data/text": np.array(["a", "b", "c", "d"], object),
        "meta/episode_ends": np.array([4]),
    }.items():
        dtype = str if values.dtype == object else values.dtype
        shape = {"shape": values.shape, "chunks": values.shape}
        root.create_array(name, dtype=dtype, compressors=None, **shape)[:] = values
    chunk = tmp_path / "a.zarr/data/text/0"
    content = chunk.read_bytes()
    assert content[:4] == (4).to_bytes(4, "little")
    chunk.write_bytes(count.to_bytes(4, "little") + content[4:])
    with pytest.raises(SourceError, match=f"'data/text'.*{count} texts in .*expected 4"):
        rlds.sources.open(tmp_path / "a.zarr")[0]
