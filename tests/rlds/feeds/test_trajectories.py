"""Tables of episodes that a function changes."""

import pickle

import arm_datasets
import numpy as np
import pytest

import rlds.feeds
from rlds.feeds import Feed, map_episodes
from rlds_ecosystem.model.nests import named_leaves, nest


@pytest.fixture(scope="module", name="directory")
def fixture_directory(tmp_path_factory):
    return arm_datasets.write_all(tmp_path_factory.mktemp("trajectories") / "data")


def reverse_without_first(steps):
    """Renames fields, changes values, drops and reorders steps, and moves images."""
    observation = {"double": steps["action"] * 2, "number": np.arange(len(steps["action"]))}
    for path, column in named_leaves(steps["observation"]):
        observation[path.rpartition("/")[2]] = column
    steps = nest({"observation/" + path: column for path, column in named_leaves(observation)})
    return nest({path: column[:0:-1] for path, column in named_leaves(steps)})


def drop_short(steps):
    return steps if len(steps["action"]) > 3 else {"action": steps["action"][:0]}


@pytest.mark.parametrize("form", arm_datasets.FORMATS)
def test_map_episodes_changes_fields_values_and_order(directory, form):
    name, camera, *_ = arm_datasets.FIELDS[form]
    table = rlds.feeds.open(directory / name, "train")
    mapped = map_episodes(table, reverse_without_first)
    lengths = table.summaries.num_steps
    assert mapped.summaries.num_steps.tolist() == np.maximum(lengths - 1, 0).tolist()
    stored_camera, camera = camera, camera.rpartition("/")[2]
    image = f"observation/{camera}"
    stored_image = f"observation/{stored_camera}"
    assert mapped.storage.is_image(image) == table.storage.is_image(stored_image)
    for episode, length in enumerate(lengths.tolist()):
        stored = table.read(episode)
        actual = mapped.read(episode)["observation"]
        np.testing.assert_array_equal(actual["double"], 2 * stored["action"][:0:-1])
        assert actual["number"].tolist() == list(range(length))[:0:-1]
        expected = dict(named_leaves(stored["observation"]))[stored_camera]
        np.testing.assert_array_equal(actual[camera], expected[:0:-1])
    # A copy for another process, with fewer fields.
    copy = pickle.loads(pickle.dumps(mapped.select([image, "observation/number"])))
    assert copy.fingerprint() == mapped.select([image, "observation/number"]).fingerprint()
    batch, copied = (Feed(view.steps(), 4, seed=1)[2]["observation"] for view in (mapped, copy))
    np.testing.assert_array_equal(batch[camera], copied[camera])
    assert batch["number"].tolist() == copied["number"].tolist()


def test_episodes_without_steps_are_left_out(directory):
    table = rlds.feeds.open(directory / "arm", "train").filter_episodes([0, 1, 3])
    mapped = map_episodes(table, drop_short)
    assert mapped.summaries.num_steps.tolist() == [5, 0, 6]
    kept = mapped.filter_episodes(mapped.summaries.num_steps > 0)
    np.testing.assert_array_equal(kept.read(1)["action"], table.read(2)["action"])
    # Metadata stays available, and a mapped table can be mapped again.
    success = kept.filter_episodes(lambda e: b"3.h5" in e.metadata["episode_metadata/file_path"])
    twice = map_episodes(success, reverse_without_first)
    wrist = twice.read(0)["observation"]["wrist_image_left"]
    np.testing.assert_array_equal(wrist, table.read(2)["observation"]["wrist_image_left"][:0:-1])


def test_mapped_episodes_fit_a_cache_of_100_bytes(directory):
    table = rlds.feeds.open(directory / "arm", "train", cache_bytes=100)
    mapped = map_episodes(table, reverse_without_first)
    assert not mapped.storage.is_random("observation/double")
    assert mapped.storage.is_random("observation/wrist_image_left")
    batches = list(Feed(mapped.select(["observation/double"]).steps(), 3, epochs=1))
    actual = np.concatenate([batch["observation"]["double"] for batch in batches])
    stored = [2 * table.read(episode)["action"][1:] for episode in range(4)]
    np.testing.assert_array_equal(np.sort(actual, 0), np.sort(np.concatenate(stored), 0))


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda steps: {"a": steps["action"], "b": steps["action"][1:]}, "differ in length"),
        (lambda steps: {"a": np.float32(1)}, "no time axis"),
        (lambda steps: {"a": steps["nothing"]}, r"episode 0: .*KeyError\('nothing'\)"),
        (lambda steps: {"a": steps["action"][:, : len(steps["action"])]}, "in an earlier episode"),
        (lambda steps: {"a": steps["action"][:0]}, "returned no step"),
    ],
)
def test_functions_must_return_trajectories(directory, function, error):
    table = rlds.feeds.open(directory / "arm", "train")
    with pytest.raises(ValueError, match=error):
        map_episodes(table, function)
