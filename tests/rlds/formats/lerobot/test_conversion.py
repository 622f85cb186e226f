"""LeRobot datasets as TFDS datasets, and datasets that LeRobot itself recorded."""

import conversions
import foreign_readers
import numpy as np
import pytest
import raw_lerobot as raw

import rlds.sources
import tfds_builders
from rlds.sources.encoded_frames import with_video
from rlds.sources.video_frames import with_frames
from rlds_ecosystem.model.nests import leaves_at

LeRobotSource = rlds.sources.formats()["lerobot"].load()

pytestmark = pytest.mark.slow


def test_a_conversion_keeps_the_metadata(tmp_path):
    path = raw.write_v3(tmp_path / "raw", codecs={raw.TOP: "h264"})
    raw.write_extras(path)
    builder = conversions.check_conversion(
        lambda: LeRobotSource(path), tmp_path, builder=tfds_builders.RldsLerobot, path=path
    )
    assert builder.info.metadata["lerobot"] == LeRobotSource(path).source_info.metadata["lerobot"]


@pytest.mark.parametrize(
    "options",
    [{"video": "frames"}, {"video": "jpeg", "flat_cameras": True}, {"match": "timestamp"}],
)
def test_a_conversion_keeps_the_options_of_the_source(tmp_path, options):
    path = raw.write_v2(tmp_path / "raw", codecs={raw.TOP: "av1", raw.DEPTH: "depth"})
    conversions.check_conversion(lambda: with_video(LeRobotSource(path, **options)), tmp_path)


@pytest.mark.parametrize("video", ["packets", "frames"])
def test_a_conversion_keeps_units_names_and_quantisation(tmp_path, video):
    path = raw.write_v3(tmp_path / "raw", codecs={raw.DEPTH: "depth"})
    raw.say_depths(path)
    builder = tfds_builders.RldsLerobot(path=path, data_dir=tmp_path, video=video, shuffle=False)
    builder.download_and_prepare()
    before, after = rlds.sources.open(path, video=video), rlds.sources.open(builder.data_dir)
    fields = [dict(leaves_at(episodes.spec, None)) for episodes in (before, after)]
    expected, actual = (
        {p: f.meaning for p, f in by_path.items() if f.meaning} for by_path in fields
    )
    assert expected == actual
    assert expected["steps/action"] == {"names": tuple(raw.JOINTS)}
    if video == "packets":
        before, after = with_frames(before), with_frames(after)
    depths = [episodes.columns(0)["observation"]["images"]["depth"] for episodes in (before, after)]
    assert depths[0].dtype == np.float32
    np.testing.assert_array_equal(*depths)


_RECORD = """
import sys
import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset

image = {"dtype": "image", "shape": (8, 10, 3), "names": ["height", "width", "channels"]}
dataset = LeRobotDataset.create("a/b", 10, {
    "action": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
    "observation.state": {"dtype": "float64", "shape": (3,), "names": ["a", "b", "c"]},
    "observation.grid": {"dtype": "float32", "shape": (2, 3), "names": None},
    "observation.images.wrist": image,
    "observation.images.top": {**image, "dtype": "video", "shape": (64, 96, 3)},
    "next.reward": {"dtype": "float32", "shape": (1,), "names": None},
    "note": {"dtype": "string", "shape": (1,), "names": None},
    "flag": {"dtype": "bool", "shape": (1,), "names": None},
}, root=sys.argv[1])
for episode in range(3):
    for step in range(4 + episode):
        dataset.add_frame({
            "action": np.array([step, episode], "f4"),
            "observation.state": np.array([0.1, step, episode]),
            "observation.grid": np.full((2, 3), step, "f4"),
            "observation.images.wrist": np.full((8, 10, 3), step, np.uint8),
            "observation.images.top": np.full((64, 96, 3), 20 * step + episode, np.uint8),
            "next.reward": np.array([0.5 * step], "f4"),
            "note": f"step {step}",
            "flag": np.array([step == 2]),
            "task": "other" if episode == 2 else "first",
        })
    dataset.save_episode()
dataset.finalize()
print(len(dataset))
"""


def test_recordings_of_lerobot_are_read(tmp_path):
    """Three episodes, in one table and one video."""
    assert foreign_readers.run("lerobot", _RECORD, tmp_path / "made") == 15
    source = with_video(LeRobotSource(tmp_path / "made", video="frames"))
    assert list(source.capabilities.faults("train")) == []
    for index in range(3):
        steps = source.read("train", index).steps
        rows = np.arange(4 + index)
        observation = steps["observation"]
        assert steps["action"].tolist() == [[step, index] for step in rows]
        assert observation["state"].tolist() == [[0.1, step, index] for step in rows]
        assert (
            observation["grid"].tolist()
            == np.full((2, 3, len(rows)), rows).T.swapaxes(1, 2).tolist()
        )
        assert steps["reward"].tolist() == (rows / 2).tolist()
        assert steps["note"].tolist() == [f"step {step}" for step in rows]
        assert steps["flag"].tolist() == (rows == 2).tolist()
        task = "other" if index == 2 else "first"
        assert steps["language_instruction"].tolist() == [task] * len(rows)
        assert {*map(len, steps["image_file"]["observation"]["images"]["wrist"])} == {16}
        error = observation["images"]["top"][:, 0, 0, 0].astype(int) - (20 * rows + index)
        assert abs(error).max() <= 3  # The codec is lossy.
    clips = LeRobotSource(tmp_path / "made").read("train", 1).metadata
    assert clips["video"]["observation"]["images"]["top"]["clip"]
