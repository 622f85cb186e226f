"""The layout of LeRobot datasets, and the raw files that the tests write."""

import json

import foreign_readers
import pytest
import raw_lerobot as raw

from rlds.formats.lerobot.layout import Info, LeRobotFeature, step_paths, task_path
from rlds.sources import SourceError


def test_features_have_the_paths_of_their_names():
    names = ["action", "actions.arm", "a", "a.b.c", "is_first", "next.reward", "x..y", "discount"]
    paths = step_paths(names)
    assert paths == {
        "action": "action",
        "actions.arm": "actions/arm",
        "a": "a",
        "a.b.c": "a.b.c",
        "is_first": "lerobot/is_first",
        "next.reward": "reward",
        "x..y": "x..y",
        "discount": "discount",
    }
    assert task_path(paths) == "language_instruction"
    paths = step_paths(["language_instruction", "reward", "next.reward", "actions.arm.left"])
    assert task_path(paths) == "task"
    assert paths["next.reward"] == "next/reward"
    assert paths["actions.arm.left"] == "action/arm/left"


def test_flat_cameras_are_directly_below_the_observation():
    names = [f"observation.images.{name}" for name in ("top", "state", "left.rgb")]
    paths = step_paths([*names, "observation.state", "observation.left"], flat_cameras=True)
    assert [paths[name] for name in names] == [
        "observation/top",
        "observation/images/state",
        "observation/images/left/rgb",
    ]


@pytest.mark.parametrize(
    ("shape", "names", "expected"),
    [
        ([48, 64, 3], ["height", "width", "channel"], (48, 64, 3)),
        ([3, 48, 64], ["channels", "height", "width"], (48, 64, 3)),
        ([3, 48, 64], None, (48, 64, 3)),
        ([4, 6, 3], ["height", "width", "rgb"], (4, 6, 3)),
        ([4, 6, 3], None, (4, 6, 3)),
        ([48, 64], None, (48, 64, 1)),
    ],
)
def test_image_shapes_are_read_in_the_order_of_their_names(shape, names, expected):
    feature = LeRobotFeature.from_json("x", {"dtype": "image", "shape": shape, "names": names})
    assert feature.image_shape == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (raw.JOINTS, raw.JOINTS),
        ({"motors": raw.JOINTS}, raw.JOINTS),
        ([raw.JOINTS], raw.JOINTS),
        ({"z": 2, "x": 0, "y": 1}, ["x", "y", "z"]),
        (["only", "two"], None),
        (None, None),
        (7, None),
    ],
)
def test_element_names_are_read_in_every_form(names, expected):
    feature = LeRobotFeature.from_json("x", {"dtype": "float32", "shape": [3], "names": names})
    assert feature.element_names == (None if expected is None else tuple(expected))


def _read_info(path):
    return json.loads((path / "meta/info.json").read_text())


def test_file_names_follow_the_templates_of_each_version(tmp_path):
    info = Info.from_json(_read_info(raw.write_v3(tmp_path / "3", codecs={raw.TOP: "h264"})))
    assert info.data_file(7, 0, 3) == "data/chunk-000/file-003.parquet"
    assert info.video_file(7, raw.TOP, 1, 4) == f"videos/{raw.TOP}/chunk-001/file-004.mp4"
    info = Info.from_json(_read_info(raw.write_v2(tmp_path / "2", codecs={raw.TOP: "h264"})))
    assert info.data_file(1234) == "data/chunk-001/episode_001234.parquet"
    assert info.video_file(1234, raw.TOP) == f"videos/chunk-001/{raw.TOP}/episode_001234.mp4"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"data_path": "../{chunk_index}.parquet"}, "data_path"),
        ({"data_path": "/data/{chunk_index}.parquet"}, "data_path"),
        ({"data_path": "{episode_index.__class__}"}, "data_path"),
        ({"data_path": "{file_index:09999999d}"}, "data_path"),
        ({"data_path": None}, "data_path"),
        ({"fps": 10**400}, "fps"),
        ({"features": [1]}, "features"),
        ({"features": {"a/b": {"dtype": "int64", "shape": [1]}}}, "features/a/b"),
        ({"features": {"a": {"dtype": "int64", "shape": [-1]}}}, "features/a"),
        ({"features": {"a": {"shape": [1]}}}, "features/a"),
        ({"fps": 0}, "fps"),
        ({"chunks_size": 0}, "chunks_size"),
        ({"codebase_version": "v1.6"}, "codebase_version"),
        ({"codebase_version": None}, "codebase_version"),
        ({"codebase_version": "v2.1", "data_path": "%s%n"}, "data_path"),
    ],
)
def test_malformed_info_json_is_refused(tmp_path, change, error):
    info = _read_info(raw.write_v3(tmp_path))
    with pytest.raises(SourceError) as raised:
        Info.from_json({**info, **change})
    assert raised.value.field == error
    assert raised.value.file == "meta/info.json"


def test_is_v3_follows_from_the_codebase_version(tmp_path):
    info = _read_info(raw.write_v3(tmp_path))
    info["data_path"] = "data/{episode_index}.parquet"
    for version, is_v3 in {"3.0": True, "v3.1": True, "v2.0": False, "v4.0": True}.items():
        assert Info.from_json({**info, "codebase_version": version}).is_v3 == is_v3


_READ = """
import json, sys
from lerobot.datasets.lerobot_dataset import LeRobotDataset
results = []
for path in sys.argv[1:]:
    data = LeRobotDataset("a/b", root=path, video_backend="pyav")
    rows = [data[index] for index in range(len(data))]
    names = [name for name in rows[0] if "images" in name]
    results.append([len(data), [row["task"] for row in rows], {n: rows[0][n].shape for n in names}])
print(json.dumps(results))
"""


@pytest.mark.slow
def test_lerobot_reads_the_raw_files_of_the_tests(tmp_path):
    codecs = {"h264": "h264", "av1": "av1", "unaligned": "unaligned"}
    paths = [raw.write_v3(tmp_path / "images")]
    paths += [raw.write_v3(tmp_path / name, codecs={raw.TOP: name}) for name in codecs]
    paths += [raw.write_v3(tmp_path / "depth", codecs={raw.DEPTH: "depth"})]
    actual = foreign_readers.run("lerobot", _READ, *paths)
    expected = [raw.TASKS[task] for data in raw.episodes() for task in data["task_index"]]
    for num_rows, tasks, shapes in actual:
        assert (num_rows, tasks) == (sum(raw.LENGTHS), expected)
        assert shapes[raw.IMAGE] == [3, 4, 6]
    assert [actual[i][2][raw.TOP] for i in (1, 2, 3)] == [[3, 32, 48]] * 3
    assert actual[4][2][raw.DEPTH] == [1, 32, 48]
