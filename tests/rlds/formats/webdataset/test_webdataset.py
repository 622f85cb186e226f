"""Shards of WebDataset, compared with the samples of the library webdataset."""

import io
import json
import tarfile

import numpy as np
import pytest
import raw_npz
import raw_webdataset
from webdataset import autodecode, tariterators

import rlds.sources
from rlds.sources import export, reading
from rlds.sources.source import Origin, SourceError
from rlds.sources.testing import differences
from rlds_ecosystem.model.nests import lookup

NpzSource = rlds.sources.formats()["npz"].load()
WebdatasetSource = rlds.sources.formats()["webdataset"].load()


def read_samples(path):
    """Yields the samples that the library reads."""
    for name in sorted(path.glob("*.tar")):
        with name.open("rb") as file:
            members = ({**member, "__url__": ""} for member in tariterators.tar_file_iterator(file))
            yield from tariterators.group_by_keys(members)


def test_keys_end_at_the_first_dot(tmp_path):
    """As in webdataset; a warning tells if numbers of steps become names of fields."""
    members = [
        (f"traj_v1.2_{step:03}.action.npy", raw_webdataset.npy(np.zeros(2))) for step in (0, 1)
    ]
    raw_webdataset.write(tmp_path / "a.tar", members)
    (sample,) = read_samples(tmp_path)
    assert sample.keys() >= {"2_000.action.npy", "2_001.action.npy"}
    with pytest.warns(UserWarning, match="the name '2_000.*a key ends at the first dot of a name"):
        rlds.sources.open(tmp_path, format="webdataset", group="number")


def test_samples_that_are_episodes_are_read(tmp_path):
    path = raw_webdataset.write_episodes(tmp_path)
    episodes = rlds.sources.open(path)
    assert episodes.format == "webdataset"
    assert [episode.key for episode in episodes] == [
        *("dir.v1/ep1", "dir.v1/ep2", "dir.v1/ep1#2", "last")
    ]
    expected = list(read_samples(path))
    assert len(expected) == 4
    for episode, sample in zip(episodes, expected):
        assert episode.key.removesuffix("#2") == sample["__key__"]
        steps = episode.steps
        with np.load(io.BytesIO(sample["steps.npz"])) as arrays:
            np.testing.assert_array_equal(steps["action"], arrays["action"])
            joints = arrays["observation/joints"]
            np.testing.assert_array_equal(steps["observation"]["joints"], joints)
        for row, file in enumerate(steps["observation"]["wrist"]):
            assert file == sample[f"wrist.{row:06d}.png"]
        np.testing.assert_array_equal(steps["state"], np.load(io.BytesIO(sample["state.npy"])))
        assert not episode.final_observation_known
        assert episode.complete
        assert episode.metadata["meta"] == sample["meta.json"].decode()
        assert episode.metadata["goal"].tolist() == [0, 1, 2, 3]
        assert episode.metadata["robot"] == 7
        assert episode.metadata["code"] == b"a pickle"
    assert episodes.columns(2, ["observation/wrist"])["observation"]["wrist"].shape == (4, 4, 6, 3)
    totals = episodes.source.capabilities.totals("train")
    assert totals["members"] == sum(len(s) - 2 for s in expected)
    renamed = rlds.sources.open(
        path, fields={"state.npy": "observation/state", "code.pyd": "", "wrist": "image"}
    )
    assert renamed[0].steps["image"][0] == expected[0]["wrist.000000.png"]
    assert "code" not in renamed[0].metadata
    assert renamed[0].steps["observation"]["state"].shape == (3, 3)


def test_samples_that_are_steps_are_read(tmp_path):
    path = raw_webdataset.write_steps(tmp_path)
    names = {"instruction.txt": "language_instruction", "jpg": "observation/camera"}
    episodes = rlds.sources.open(path, group="number", fields=names)
    expected = list(read_samples(path))
    assert [episode.key for episode in episodes] == ["run.v2/a", "run.v2/b"]
    row = 0
    for episode in episodes:
        steps = episode.steps
        for index in range(episode.num_steps):
            sample = expected[row]
            assert steps["observation"]["camera"][index] == sample["jpg"]
            assert steps["action"][index].tolist() == [index + 5] * 2
            assert steps["reward"][index] == index + 5
            assert steps["language_instruction"][index] == sample["instruction.txt"].decode()
            row += 1
        assert steps["is_terminal"].tolist() == [False] * (episode.num_steps - 1) + [True]
        assert not episode.truncated
        assert steps["discount"][-1] == 0
    assert row == len(expected) == 5
    plain = rlds.sources.open(path, group="number")
    assert plain.spec["steps"]["observation"]["jpg"].shape == (4, 6, 3)


def write_shards(folder, keys, size):
    """Writes steps into shards of some size, with the numbers in their keys as actions."""
    for shard, begin in enumerate(range(0, len(keys), size)):
        steps = [
            (f"{key}.action.npy", raw_webdataset.npy(np.full(2, int(key[-2:]))))
            for key in keys[begin : begin + size]
        ]
        raw_webdataset.write(folder / f"s-{shard}.tar", steps)
    return folder


def make_keys(name, length):
    return [f"{name}/{step:02d}" for step in range(length)]


def test_an_episode_continues_in_the_next_shard(tmp_path):
    lengths = {"a": 23, "b": 9, "c": 80}
    keys = [key for name, length in lengths.items() for key in make_keys(name, length)]
    episodes = rlds.sources.open(write_shards(tmp_path, keys, 10), group="number")
    assert (tmp_path / "s-11.tar").exists()  # After s-2.tar.
    assert [episode.key for episode in episodes] == [*lengths]
    for episode in episodes:
        assert episode.complete
        assert episode.steps["action"][:, 0].tolist() == [*range(lengths[episode.key])]
    assert episodes[1].origin == Origin("s-2.tar", 3, 12)

    (tmp_path / "s-6.tar").unlink()
    episodes = rlds.sources.open(tmp_path, group="number")
    message = r"s-7\.tar, episode c, row 28: step 38 after step 27, with which s-5\.tar ends"
    with pytest.raises(SourceError, match=message):
        episodes[2]
    (tmp_path / "s-0.tar").unlink()
    assert [rlds.sources.open(tmp_path, group="number")[index].complete for index in (0, 1)] == [
        *(False, True)
    ]


def test_shards_may_number_their_steps_from_zero(tmp_path):
    keys = [f"{index % 5:02d}" for index in range(10)]
    episodes = rlds.sources.open(write_shards(tmp_path, keys, 5), group="number")
    assert [(episode.num_steps, episode.complete) for episode in episodes] == [(5, True)] * 2


def test_interleaved_episodes_are_refused(tmp_path):
    keys = [*make_keys("a", 3), "b/00", "a/03", "b/01", *make_keys("c", 2)]
    path = write_shards(tmp_path / "shards", keys, 5)
    episodes = rlds.sources.open(path, group="number")
    for index in range(4):
        with pytest.raises(SourceError, match=r"step [13] comes after steps of other episodes"):
            episodes[index]
    assert episodes[4].num_steps == 2


def test_a_truncated_file_keeps_its_complete_samples(tmp_path):
    path = raw_webdataset.write(
        tmp_path / "a.tar",
        [member for n in range(3) for member in raw_webdataset.episode(f"ep{n}", 3, seed=n)],
    )
    data = path.read_bytes()
    end_of_data = (-(-len(data.rstrip(b"\0")) // 512) + 1) * 512
    actual = set()
    for size in range(512 * 30, len(data) + 1, 512):
        path.write_bytes(data[:size])
        episodes = rlds.sources.open(path, format="webdataset")
        assert len(list(episodes.source.capabilities.faults("train"))) == (size < end_of_data)
        *complete, last = range(len(episodes))
        assert all(episodes[index].complete for index in complete)
        try:
            actual.add((len(episodes), episodes[last].complete))
        except SourceError:
            actual.add((len(episodes), None))
    assert actual == {(2, None), (2, False), (3, None), (3, False), (3, True)}


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_missing_long_name_takes_no_memory(tmp_path, kind):
    path = raw_webdataset.write(tmp_path / "a.tar", raw_webdataset.episode("a", 3))
    header = tarfile.TarInfo("long")
    header.type, header.size = kind, 1 << 40
    archive, long_name = path.read_bytes(), header.tobuf(tarfile.GNU_FORMAT)
    end = -(-len(archive.rstrip(b"\0")) // 512) * 512
    path.write_bytes(archive[:end] + long_name)
    episodes = rlds.sources.open(path, format="webdataset")
    assert len(list(episodes.source.capabilities.faults("train"))) == 1
    path.write_bytes(long_name + archive)
    with pytest.raises(SourceError, match=r"a\.tar: .* a name of 1,099,511,627,776 bytes"):
        WebdatasetSource(path)


def test_damaged_samples_are_refused_and_intact_ones_read(tmp_path):
    member = raw_webdataset.episode("b", 2)
    path = raw_webdataset.write(
        tmp_path / "a.tar",
        [
            *raw_webdataset.episode("a", 2),
            *(member[0], *member),
            ("c.steps.npz", raw_webdataset.npz(action=np.array([print]))),
            ("d.steps.npz", raw_webdataset.npz(action=np.zeros((2, 5)))),
            ("d.action.npy", b"no array"),
            ("e.steps.npz", raw_webdataset.npz(action=np.zeros((2, 2), "f4"))),
            *(*raw_webdataset.episode("f", 2), ("f.goal.txt", b"another goal")),
        ],
    )
    episodes = rlds.sources.open(path)
    assert episodes[0].num_steps == 2
    assert rlds.sources.open(path, fields={"goal.txt": ""})[5].num_steps == 2
    for index, message in enumerate(
        (
            "two members for the field 'steps.npz'",
            "pickled objects",
            "action.npy",
            "missing",
            "field 'goal.txt': another field is 'goal', too",
        ),
        1,
    ):
        with pytest.raises(SourceError, match=message):
            episodes[index]
    (tmp_path / "a.tar").write_bytes(b"x" * 5000)
    with pytest.raises(SourceError, match=r"a\.tar: cannot be read: ReadError"):
        WebdatasetSource(tmp_path)
    raw_webdataset.write(tmp_path / "a.tar", [("a.jpg", b"x")])
    with pytest.raises(SourceError, match="unknown format"):
        rlds.sources.open(tmp_path)


def test_npz_survives_an_export_to_webdataset(tmp_path):
    path = raw_npz.write_folder(tmp_path / "raw", raw_npz.sample())
    exported = export(path, "webdataset", tmp_path / "made", shard_bytes=20_000)
    placements = {
        placement.field: (placement.place, placement.how) for placement in exported.placements
    }
    assert placements["steps/observation/camera"] == ("observation.camera.*.png", "exact")
    assert placements["steps/info/qpos"] == ("steps.npz", "exact")
    assert placements["steps/note"] == ("", "sidecar")
    assert [file.name for file in sorted((tmp_path / "made").glob("[!.]*"))] == [
        *("features.json", "shard-000000.tar", "shard-000001.tar")
    ]
    raw = reading.episodes(NpzSource(path), "train", "0-3")
    for original, copy in zip(raw, rlds.sources.open(exported.path)):
        assert list(differences(original, copy)) == []
    decode = autodecode.Decoder([autodecode.imagehandler("rgb8")])
    actual = [decode(sample) for sample in read_samples(tmp_path / "made")]
    assert [sample["__key__"] for sample in actual] == ["000000", "000001", "000002"]
    for sample, raw in zip(actual, raw_npz.sample().values()):
        np.testing.assert_array_equal(sample["steps.npz"]["action"][:-1], raw["action"])
        for row, pixels in enumerate(raw["observation/camera"]):
            np.testing.assert_array_equal(sample[f"observation.camera.{row:06d}.png"], pixels)
        assert sample["meta.json"]["task"] == "stack"


@pytest.mark.parametrize(
    ("images", "files"),
    [
        ([], ["camera"]),
        (["observation"], ["camera", "observation.image"]),
        (["observation/camera", "action"], ["action", "observation.camera"]),
    ],
)
def test_fields_never_share_a_file_name(tmp_path, images, files):
    arrays = {"action": np.ones((4, 2)), "observation": np.ones((5, 3))}
    if "observation/camera" in images:
        del arrays["observation"]
    rng = np.random.default_rng(0)
    arrays |= {path: rng.integers(0, 256, (5, 6, 6, 3), np.uint8) for path in [*images, "camera"]}
    np.savez(tmp_path / "raw.npz", **arrays)
    exported = export(tmp_path / "raw.npz", "webdataset", tmp_path / "made")
    (original,), (copy,) = rlds.sources.open(tmp_path / "raw.npz"), rlds.sources.open(exported.path)
    assert list(differences(original, copy)) == []
    (sample,) = read_samples(tmp_path / "made")
    actual = sorted(name for name in sample if name.endswith(".000000.png"))
    assert actual == [f"{name}.000000.png" for name in files]


def test_images_and_clips_are_exported_as_files(tmp_path):
    episodes = rlds.sources.open(raw_webdataset.write_episodes(tmp_path / "raw"))
    export(episodes, "webdataset", tmp_path / "made")
    for sample, raw in zip(read_samples(tmp_path / "made"), read_samples(tmp_path / "raw")):
        assert sample["observation.wrist.000000.png"] == raw["wrist.000000.png"]
    names = {"code.pyd": "video/observation/top/clip"}
    with_clips = rlds.sources.open(tmp_path / "raw", fields=names)
    exported = export(with_clips, "webdataset", tmp_path / "clips")
    assert exported.placements[-1].place == "video.observation.top.mp4"
    clip = "video/observation/top/clip"
    actual, expected = (
        lookup(it.spec, clip) for it in (rlds.sources.open(exported.path), with_clips)
    )
    assert actual == expected
    for sample in read_samples(tmp_path / "clips"):
        assert sample["video.observation.top.mp4"] == b"a pickle"
        assert b"a pickle" not in sample["rlds.bin"]
    actual = json.loads((tmp_path / "clips" / "features.json").read_text())
    assert actual["steps"]["action"] == {"dtype": "float32", "shape": [2]}
