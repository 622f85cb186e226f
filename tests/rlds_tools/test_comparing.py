import io
import json

import numpy as np
import PIL.Image
import pytest
from tiny_datasets import episode, write_dataset

import rlds_tools
import tfds_files
from rlds_tools.command_line.commands import run

LENGTHS = (5, 8, 30)


@pytest.fixture
def episodes():
    """The episodes of `dataset`, to be changed."""
    return [episode(length, seed=length) for length in LENGTHS]


def test_swapped_actions_are_found_unless_they_are_ignored(dataset, episodes, tmp_path, capsys):
    actions = episodes[1]["steps"]["action"]
    actions[:] = np.arange(8)
    same = write_dataset(tmp_path / "same", episodes)
    actions[[2, 5]] = actions[[5, 2]]
    other = write_dataset(tmp_path / "other", episodes)
    assert run(["diff", same, other, "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert (result["episodes"], result["steps"], result["differences"]) == (3, 43, [])
    (action,) = result["values"]
    assert action["field"] == "steps/action"
    assert (action["episodes"], action["steps"], action["largest"]) == (1, 2, 3)
    assert (action["split"], action["episode"], action["step"]) == ("train", 1, 2)
    assert (action["one"], action["other"]) == (2, 5)
    assert run(["diff", same, other, "--ignore", "steps/action"]) == 0
    assert run(["diff", same, other, "--atol", "3"]) == 0
    assert run(["diff", same, other, "--structure-only"]) == 0
    assert run(["diff", same, other]) == 1
    assert "train episode 1, step 2" in capsys.readouterr().out
    assert run(["diff", same, other, "--ignore", "steps/acton"]) == 1
    assert "no field 'steps/acton'; did you mean 'steps/action'" in capsys.readouterr().err


def test_diff_ignores_names_order_and_shards(dataset, episodes, tmp_path):
    episodes[0]["steps"]["reward"][1] = np.nan
    one = write_dataset(tmp_path / "one", episodes)
    other = write_dataset(tmp_path / "other", episodes[::-1], name="renamed")
    assert rlds_tools.diff(one, other).exit_code == 0
    by_index = rlds_tools.diff(one, other, match="index")
    assert {result.field for result in by_index.values} > {"steps", "steps/reward"}
    assert "episode_id in 2 episodes" in [note.what for note in by_index.notes]


def test_episodes_of_one_dataset_only_are_unmatched(dataset, episodes, tmp_path, capsys):
    other = write_dataset(tmp_path / "more", [episode(7, seed=7), *episodes[1:]])
    result = rlds_tools.diff(dataset, other)
    assert [(u.path, u.split, u.episodes, u.ids) for u in result.unmatched] == [
        (dataset, "train", 1, ("episode 5",)),
        (other, "train", 1, ("episode 7",)),
    ]
    assert (result.episodes, result.values) == (2, ())
    assert f"only in {other}, train: 1 episode: episode 7" in str(result)
    duplicated = write_dataset(tmp_path / "twice", [*episodes, episodes[2]])
    assert rlds_tools.diff(dataset, duplicated).unmatched[0].episodes == 1
    with pytest.raises(ValueError, match=r"episodes 2 and 3 have the same id 'episode 30'"):
        rlds_tools.diff(dataset, duplicated, match="id")
    assert run(["diff", dataset, duplicated, "--structure-only"]) == 1
    assert "split train  3 episodes" in capsys.readouterr().out


def test_differences_of_lengths_are_shown_with_the_values(dataset, episodes, tmp_path):
    steps = episodes[2]["steps"]
    short = {name: column[:20] for name, column in steps.items() if name != "observation"}
    short["observation"] = {name: column[:20] for name, column in steps["observation"].items()}
    other = write_dataset(tmp_path / "other", [*episodes[:2], {**episodes[2], "steps": short}])
    length, truncated = rlds_tools.diff(dataset, other).values
    assert (length.field, length.episode, length.step) == ("steps", 2, None)
    assert (length.one, length.other, length.largest) == (30, 20, 10)
    assert (truncated.field, truncated.other) == ("truncated", True)


def write(directory, image, dtype, cameras, **scalars):
    """Writes a dataset of one episode with a camera; returns its path."""
    tensor = tfds_files.Tensor(dtype=np.dtype(dtype), shape=(2,), encoding="bytes")
    fields = {name: tfds_files.Tensor(dtype=np.dtype(np.int64)) for name in scalars}
    step = tfds_files.Features(features={"camera": image, "x": tensor, **fields})
    features = {"steps": tfds_files.Dataset(feature=step)}
    with tfds_files.append_to(directory, tfds_files.Features(features=features), "cam") as writer:
        values = np.array([[1, 2], [np.nan, 4], [5, 1e9]], dtype)
        writer.add({"steps": {"camera": cameras, "x": values, **scalars}})
    return str(directory)


def encode_jpeg(image):
    file = io.BytesIO()
    PIL.Image.fromarray(image).save(file, "jpeg")
    return file.getvalue()


def test_images_are_equal_if_their_pixels_are(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (3, 8, 8, 3), np.uint8)
    uint8 = np.dtype(np.uint8)
    png = tfds_files.Image(shape=(None, None, 3), dtype=uint8, encoding_format="png")
    jpeg = tfds_files.Image(shape=(8, 8, 3), dtype=uint8, encoding_format="jpeg")
    raw = tfds_files.Tensor(shape=(8, 8, 3), dtype=uint8)
    one = write(tmp_path / "png", png, np.float32, pixels)
    other = write(tmp_path / "raw", raw, np.float32, pixels)
    result = rlds_tools.diff(one, other)
    assert result.exit_code == 0
    assert "field steps/camera" in [note.what for note in result.notes]  # Any size, and 8 by 8.
    lossy = write(tmp_path / "jpg", jpeg, np.float32, np.array([*map(encode_jpeg, pixels)], object))
    assert rlds_tools.diff(lossy, lossy).exit_code == 0
    (camera,) = rlds_tools.diff(one, lossy).values
    assert (camera.field, camera.steps, camera.step, len(camera.index)) == ("steps/camera", 3, 0, 3)
    wider = write(tmp_path / "wider", png, np.float64, pixels, extra=np.arange(3))
    result = rlds_tools.diff(one, wider)
    assert [(d.what, d.one, d.other) for d in result.differences] == [
        ("field steps/x", "float32 of shape (2,)", "float64 of shape (2,)"),
        ("field steps/extra", None, "int64 of shape ()"),
    ]
    assert result.values == ()
