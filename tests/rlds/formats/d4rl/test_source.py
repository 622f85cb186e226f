import shutil
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
import raw_d4rl
from conversions import check_conversion
from hypothesis import given, settings
from hypothesis import strategies as st

import rlds.sources
from rlds.raw_files import hdf5_access
from rlds.sources import reading
from rlds.sources.episodes import Episodes
from rlds.sources.source import DamagedEpisode, SourceError
from rlds.sources.testing import check_source
from tfds_builders.builder import convert
from tfds_builders.published import D4rlConfig, RldsD4rl

D4rlSource = rlds.sources.formats()["d4rl"].load()

# Some families have no timeouts; the warning has a test of its own.
pytestmark = pytest.mark.filterwarnings("ignore:.*there are no timeouts")

UMAZE = "Ant_maze_u-maze_noisy_multistart_False_multigoal_False_sparse"

# The bounds and endings of the episodes of each file: t(erminal state), c(ut by a time limit or a
# reset), or i(ncomplete).
EPISODES = {
    "hopper_medium": ([0, 4, 9, 12], "tci"),
    "halfcheetah_medium_replay-v1": ([0, 4, 9, 12], "tci"),
    "hopper_medium-v2": ([0, 4, 9, 12], "tci"),
    "hopper_medium_replay-v2": ([0, 4, 9, 12], "tci"),
    "pen-v0_demos_clipped": ([0, 4, 10], "cc"),
    "door-demos-v0-bc-combined": ([0, 4, 10], "cc"),
    "hammer-expert-v1": ([0, 4, 10], "cc"),
    UMAZE: ([0, 6, 14, 16, 19], "tcci"),
    f"{UMAZE}_fixed": ([0, 6, 14, 19], "tci"),
    "mini_kitchen_microwave_kettle_light_slider-v0": ([0, 4, 9, 12, 16], "tttt"),
    "maze2d-umaze-sparse-v1": ([0, 14], "i"),
    "maze2d-large-dense-v1": ([0, 7, 14], "ci"),
    "minigrid4rooms": ([0, 5, 9], "ti"),
    "flow-ring-v0-idm": ([0, 5, 10], "cc"),
    "carla_lane_follow_flat-v0": ([0, 4, 9], "tc"),
    "bullet-hopper_medium": ([0, 4, 10], "tt"),
}


def read_episodes(source):
    return [source.read("train", index) for index in range(source.num_episodes("train"))]


def read_arrays(path):
    """Returns all arrays of a file by path."""
    arrays = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: arrays.update({name: item[()]}) if hasattr(item, "dtype") else None
        )
    return arrays


def column_of(steps, name):
    names = {"observations": "observation", "actions": "action", "rewards": "reward"}
    for key in names.get(name, name).split("/"):
        steps = steps[key]
    return steps


def write_small(path, length=10, **changes):
    """Writes a file with two episodes; `None` removes an array."""
    arrays = {
        **raw_d4rl.transitions((4, length - 4), 3, 2),
        "terminals": raw_d4rl.flags(length, 3),
        "timeouts": raw_d4rl.flags(length, length - 1),
    }
    arrays = {name: value for name, value in {**arrays, **changes}.items() if value is not None}
    return raw_d4rl.write(path, arrays)


# --- Families ------------------------------------------------------------------------------------


def test_all_families_are_tested():
    assert EPISODES.keys() == raw_d4rl.FAMILIES.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", EPISODES)
def test_episodes_of_every_family_have_their_bounds_and_endings(tmp_path, name):
    bounds, ends = EPISODES[name]
    actual = read_episodes(D4rlSource(raw_d4rl.write_family(tmp_path, name)))
    assert [e.origin.begin for e in actual] == bounds[:-1]
    assert [e.origin.end for e in actual] == bounds[1:]
    assert [e.complete for e in actual] == [end != "i" for end in ends]
    assert [e.truncated for e in actual] == [end != "t" for end in ends]
    assert [bool(e.steps["is_terminal"][-1]) for e in actual] == [end == "t" for end in ends]


@pytest.mark.slow
@pytest.mark.parametrize("name", EPISODES)
def test_steps_have_the_values_of_the_rows(tmp_path, name):
    path = raw_d4rl.write_family(tmp_path, name)
    arrays = read_arrays(path)
    rows = len(arrays["observations"])
    for episode in read_episodes(D4rlSource(path)):
        begin, end = episode.origin.begin, episode.origin.end
        is_known = "next_observations" in arrays
        assert episode.final_observation_known == is_known
        assert episode.num_steps == end - begin + is_known
        for key, array in arrays.items():
            if key.startswith("metadata") or key == "next_observations":
                continue
            assert len(array) == rows
            column = column_of(episode.steps, key)
            assert column.dtype == array.dtype
            for row in range(begin, end):
                expected = array[row]
                if key in ("rewards", "terminals", "timeouts"):
                    expected = expected.reshape(())
                np.testing.assert_array_equal(column[row - begin], expected, strict=True)
            if is_known and key != "observations":
                assert not np.any(column[-1])
        if is_known:
            final = arrays["next_observations"][end - 1]
            np.testing.assert_array_equal(episode.steps["observation"][-1], final)
        discount = np.ones(end - begin, np.float32)
        discount[-1] = 0 if arrays["terminals"][end - 1] else 1
        np.testing.assert_array_equal(episode.steps["discount"][: end - begin], discount)


@pytest.mark.slow
@pytest.mark.parametrize("name", EPISODES)
def test_sources_of_every_family_pass_the_common_checks(tmp_path, name):
    path = raw_d4rl.write_family(tmp_path, name)
    assert rlds.sources.format_of(path) == "d4rl"  # And not d4rl_pybullet.
    check_source(D4rlSource(path))


def test_a_file_without_timeouts_warns_of_time_limits(tmp_path):
    """Its terminals may be time limits."""
    ends = {"terminals": raw_d4rl.flags(10, 3, 9), "timeouts": None}
    path = write_small(tmp_path / "a.hdf5", **ends)
    with pytest.warns(UserWarning, match=r"a\.hdf5: there are no timeouts.*time_limit="):
        unlimited = rlds.sources.open(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for episodes, truncated in (
            (unlimited, [False, False]),
            (rlds.sources.open(path, time_limit=6), [False, True]),
            (rlds.sources.open(path, time_limit=0), [False, False]),
            (rlds.sources.open(path, boundary="flags"), [False, False]),
            (rlds.sources.open(write_small(tmp_path / "b.hdf5")), [False, True]),
        ):
            assert [e.truncated for e in episodes] == truncated
            for episode in episodes:
                assert episode.complete
                assert episode.steps["is_terminal"][-1] != episode.truncated
                assert episode.steps["discount"][-2] == episode.truncated


@pytest.mark.slow
def test_large_files_are_read_completely(tmp_path):
    path = raw_d4rl.write_mujoco_like(
        tmp_path / "large.hdf5", rows=20_500, next_observations=True, infos=True
    )
    arrays, source = read_arrays(path), D4rlSource(path)
    actual = [
        e
        for piece in reading.parts(source, "train")
        for e in reading.episodes(source, "train", piece)
    ]
    assert [episode.num_steps for episode in actual] == [1001] * 20 + [501]
    assert [episode.truncated for episode in actual] == [False, True] * 10 + [True]
    for key in ("observations", "actions", "rewards", "infos/qpos"):
        rows = np.concatenate([column_of(episode.steps, key)[:-1] for episode in actual])
        np.testing.assert_array_equal(rows, arrays[key], strict=True)


@pytest.mark.slow
def test_arrays_are_decompressed_once(tmp_path, monkeypatch):
    path = raw_d4rl.write_mujoco_like(tmp_path / "large.hdf5", rows=150_000, episode_length=70)
    source = D4rlSource(path)
    names, get = [], h5py.Dataset.__getitem__
    monkeypatch.setattr(
        h5py.Dataset, "__getitem__", lambda self, rows: names.append(self.name) or get(self, rows)
    )
    assert len(read_episodes(source)) == 2143
    # 4 MB at a time: 10.2 MB of observations, 3.6 MB of actions, 0.6 MB of rewards.
    assert 3 <= names.count("/observations") <= 4
    assert names.count("/actions") == names.count("/rewards") == 1


@pytest.mark.slow
def test_rollouts_of_hopper_keep_their_observations(tmp_path):
    pytest.importorskip("imageio")  # Gymnasium needs it to import its MuJoCo environments.
    path = raw_d4rl.write_rollouts(
        tmp_path / "hopper_random-v2.hdf5", "Hopper-v5", rows=400, max_length=20
    )
    source = D4rlSource(path)
    assert "next_observation" not in source.fields.steps
    actual = read_episodes(source)
    assert {episode.truncated for episode in actual} == {True, False}
    for episode in actual:
        # Hopper observes its joints except for the position. An episode ends if it falls.
        observation, joints = episode.steps["observation"], episode.steps["infos"]["qpos"]
        np.testing.assert_array_equal(observation[:-1, :5], joints[:-1, 1:].astype(np.float32))
        height, angle = observation[:, 0], observation[:, 1]
        healthy = (height > 0.7) & (np.abs(angle) < 0.2)
        assert healthy[:-1].all()
        assert healthy[-1] == (not episode.steps["is_terminal"][-1])


# --- Boundaries ----------------------------------------------------------------------------------


def read_bounds(source):
    return [(episode.origin.begin, episode.origin.end) for episode in read_episodes(source)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("boundary", "options", "expected"),
    [
        ("flags", {}, [(0, 4), (4, 10)]),
        ("timeouts", {}, [(0, 10)]),
        ("file", {}, [(0, 10)]),
        ("observation_jump", {}, [(0, 4), (4, 10)]),
        (["file", "length"], {"length": 3}, [(0, 3), (3, 6), (6, 9), (9, 10)]),
        (["flags", "length"], {"length": 4}, [(0, 4), (4, 8), (8, 10)]),
    ],
    ids=str,
)
def test_rules_divide_the_rows_into_episodes(tmp_path, boundary, options, expected):
    path = write_small(tmp_path / "a.hdf5")
    assert read_bounds(D4rlSource(path, boundary, **options)) == expected


def test_windows_are_complete_if_they_end_like_episodes(tmp_path):
    source = D4rlSource(write_small(tmp_path / "a.hdf5"), ["flags", "length"], length=4)
    assert [episode.complete for episode in read_episodes(source)] == [True, False, True]


def test_jumps_of_the_observation_divide_the_rows_into_episodes(tmp_path):
    path = write_small(tmp_path / "a.hdf5", next_observations=None)
    with pytest.raises(ValueError, match=r"a.hdf5 has no next_observations; pass a distance as ju"):
        D4rlSource(path, "observation_jump")
    assert read_bounds(D4rlSource(path, "observation_jump", jump=1.0)) == [(0, 4), (4, 10)]
    assert read_bounds(D4rlSource(path, "observation_jump", jump=1000.0)) == [(0, 10)]


def test_boundary_rules_follow_from_the_file_name_and_the_arrays(tmp_path):
    def rules(name, **changes):
        return D4rlSource(write_small(tmp_path / f"{name}.hdf5", **changes)).boundary.rules

    assert rules("data") == ("flags",)
    assert rules("my-antmaze") == ("timeouts", "observation_jump")
    assert rules("my-antmaze", timeouts=None) == ("observation_jump",)
    assert rules("antmaze-mine-v2") == ("timeouts",)
    assert rules("my-maze2d") == ("timeouts",)
    assert rules("my-maze2d", timeouts=None) == ("file",)
    assert rules("any", infos=np.repeat([0, 1], 5)) == ("infos_index", "flags")


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_flags_divide_rows(tmp_path_factory, rows):
    terminals, timeouts = np.array(rows).T
    path = tmp_path_factory.mktemp("flags") / "a.hdf5"
    raw_d4rl.write(
        path,
        {
            **raw_d4rl.without(raw_d4rl.transitions((len(rows),), 2, 1), "next_observations"),
            "terminals": terminals,
            "timeouts": timeouts,
        },
    )
    expected, begin = [], 0
    for row in range(len(rows)):
        if terminals[row] or timeouts[row] or row == len(rows) - 1:
            ended = bool(terminals[row] or timeouts[row])
            expected.append((begin, row + 1, not terminals[row], ended))
            begin = row + 1
    actual = read_episodes(D4rlSource(path))
    assert [(e.origin.begin, e.origin.end, e.truncated, e.complete) for e in actual] == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"boundary": "flag"}, r"boundary: got \['flag'\], expected some of \('flags', 'timeouts'"),
        ({"boundary": []}, "boundary: got no rule"),
        ({"boundary": "timeouts"}, "a.hdf5 has no timeouts; it has "),
        ({"boundary": "infos_index"}, "a.hdf5 has no array of integers 'infos'"),
        ({"boundary": "length"}, "the rule 'length' needs the option length, .* got None"),
        ({"length": 3}, "the rule 'length' needs the option length, .* got 3"),
        ({"boundary": "length", "length": 0}, "length: got 0, expected 1 or more"),
        ({"dataset": "hopper"}, "dataset: got 'hopper', expected one of "),
    ],
    ids=str,
)
def test_wrong_options_are_refused(tmp_path, options, message):
    path = write_small(tmp_path / "a.hdf5", timeouts=None)
    with pytest.raises(ValueError, match=message):
        D4rlSource(path, **options)


# --- Next observations ---------------------------------------------------------------------------


def test_redundant_next_observations_are_not_stored(tmp_path):
    source = D4rlSource(raw_d4rl.write_family(tmp_path, "hopper_medium-v2"))
    assert "next_observation" not in source.fields.steps
    assert source.source_info.metadata["d4rl"]["rows_with_other_next_observation"] == 0


def test_next_observations_are_stored_if_a_single_one_differs(tmp_path):
    path = raw_d4rl.write_family(tmp_path, "hopper_medium_replay-v2")
    source, arrays = D4rlSource(path), read_arrays(path)
    assert source.fields.steps["next_observation"].shape == (11,)
    assert source.source_info.metadata["d4rl"]["rows_with_other_next_observation"] == 1
    first, second, _ = read_episodes(source)
    for episode, rows in ((first, slice(0, 4)), (second, slice(4, 9))):
        stored = episode.steps["next_observation"]
        np.testing.assert_array_equal(stored[:-1], arrays["next_observations"][rows])
        assert not stored[-1].any()
    assert read_bounds(D4rlSource(path, ["flags", "observation_jump"])) == [
        (0, 4),
        (4, 7),
        (7, 9),
        (9, 12),
    ]


def test_next_observations_are_compared_bit_by_bit(tmp_path):
    arrays = raw_d4rl.transitions((4, 6), 3, 2)
    arrays["observations"][1], arrays["next_observations"][0] = np.nan, np.nan
    for row in (1, 2):
        arrays["observations"][row + 1, 0], arrays["next_observations"][row, 0] = 0.0, -0.0
    source = D4rlSource(write_small(tmp_path / "a.hdf5", **arrays))
    assert source.source_info.metadata["d4rl"]["rows_with_other_next_observation"] == 2


# --- Features and metadata -----------------------------------------------------------------------


def test_features_have_the_types_and_shapes_of_the_file(tmp_path):
    path = raw_d4rl.write_family(tmp_path, "halfcheetah_medium_replay-v1")
    features = D4rlSource(path).fields.steps
    assert features["observation"].dtype == np.float64
    assert features["reward"].shape == ()
    assert features["infos"]["qpos"].shape == (9,)
    assert features["terminals"].dtype == np.bool_
    assert "next_observation" not in features


def test_metadata_describes_the_dataset(tmp_path):
    path = raw_d4rl.write_family(tmp_path, "hopper_medium-v2")
    assert D4rlSource(path).source_info.metadata["d4rl"] == {
        "file": "hopper_medium-v2.hdf5",
        "family": "mujoco",
        "boundary": ["flags"],
        "dataset": "hopper-medium-v2",
        "url": "http://rail.eecs.berkeley.edu/datasets/offline_rl/gym_mujoco_v2/"
        "hopper_medium-v2.hdf5",
        "reference_min_score": -20.272305,
        "reference_max_score": 3234.3,
        "algorithm": "SAC",
        "iteration": 2000000,
        "rows_with_other_next_observation": 0,
    }


def test_the_dataset_option_sets_metadata_and_keys(tmp_path):
    path = write_small(tmp_path / "x1f3.hdf5")
    assert "dataset" not in D4rlSource(path).source_info.metadata["d4rl"]
    source = D4rlSource(path, dataset="ant-medium-v2")
    assert source.source_info.metadata["d4rl"]["reference_max_score"] == 3879.7
    assert source.key("train", 1) == "ant_medium-v2-0000001"
    assert source.read("train", 0).origin.file == "ant_medium-v2.hdf5"


# --- Bad input -----------------------------------------------------------------------------------


RAGGED = (10, h5py.vlen_dtype(np.float32))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": None}, "field 'actions': missing"),
        ({"terminals": None}, "field 'terminals': missing"),
        ({"observations": np.zeros(10)}, "field 'observations'"),
        ({"rewards": np.zeros((10, 2))}, "field 'rewards'"),
        ({"actions": np.float32(0)}, "field 'actions'"),
        ({"terminals/a": np.zeros(10), "terminals": None}, "field 'terminals'"),
        ({"rewards": np.zeros(9)}, "field 'rewards'"),
        ({"infos/qpos": np.zeros((9, 2))}, "field 'infos/qpos'"),
        ({"terminals": np.arange(10) % 3}, "row 2, field 'terminals': 2, expected 0 or 1"),
        ({"timeouts": np.full(10, np.nan)}, "row 0, field 'timeouts'"),
        ({"next_observations": np.zeros((10, 3))}, "field 'next_observations'"),
        ({"infos/name": np.array([b"a"] * 10)}, "field 'infos/name'"),
        ({"discount": np.ones(10)}, "field 'discount'"),
        ({"observation/x": np.ones(10)}, "field 'observation/x'"),
        ({"infos/x": h5py.SoftLink("/nowhere")}, "field 'infos/x'"),
        ({"observations": RAGGED}, "field 'observations'"),
        ({"infos/contacts": RAGGED}, "field 'infos/contacts'"),
    ],
    ids=str,
)
def test_malformed_arrays_are_refused(tmp_path, changes, message):
    ragged = [name for name, value in changes.items() if value is RAGGED]
    path = write_small(tmp_path / "a.hdf5", **{**changes, **dict.fromkeys(ragged)})
    with h5py.File(path, "a") as file:
        for name in ragged:
            file.create_dataset(name, RAGGED[:1], RAGGED[1])
    with pytest.raises(SourceError, match=f"a.hdf5, {message}"):
        D4rlSource(path)


def test_a_file_without_rows_is_refused(tmp_path):
    arrays = {"observations": np.zeros((0, 3)), "actions": np.zeros((0, 2))}
    path = raw_d4rl.write(tmp_path / "a.hdf5", {**arrays, "rewards": [], "terminals": []})
    with pytest.raises(SourceError, match="field 'observations': there are no rows"):
        D4rlSource(path)


def test_truncated_and_missing_files_are_refused(tmp_path):
    path = write_small(tmp_path / "a.hdf5")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(SourceError, match=r"a.hdf5: not a complete HDF5 file: .*truncated"):
        D4rlSource(path)
    path.write_bytes(b"PK")
    with pytest.raises(SourceError, match=r"a.hdf5: not a complete HDF5 file"):
        D4rlSource(path)
    with pytest.raises(FileNotFoundError, match=r"b.hdf5' does not exist"):
        D4rlSource(tmp_path / "b.hdf5")


def damage_chunk(path, name, index):
    with h5py.File(path) as file:
        chunk = file[name].id.get_chunk_info(index)
    content = bytearray(path.read_bytes())
    middle = chunk.byte_offset + chunk.size // 2
    content[middle : middle + 8] = b"\xff" * 8
    path.write_bytes(content)


def write_small_chunks(path, *, next_observations=False):
    arrays = raw_d4rl.transitions((8, 8, 8), 3, 2)
    if not next_observations:
        del arrays["next_observations"]
    ends = {"terminals": raw_d4rl.flags(24, 7, 15, 23)}
    with h5py.File(path, "w") as file:
        for name, value in {**arrays, **ends}.items():
            chunks = (8, *value.shape[1:])
            file.create_dataset(name, data=value, chunks=chunks, compression="gzip")
    return path


def test_damage_is_confined_to_its_episodes(tmp_path):
    path = write_small_chunks(tmp_path / "a.hdf5")
    expected = read_episodes(D4rlSource(path))
    damage_chunk(path, "actions", 1)
    first, second, third = reading.episodes(D4rlSource(path), "train", "0-3")
    assert isinstance(second, DamagedEpisode)
    assert second.key == "a-0000001"
    assert "a.hdf5, episode a-0000001, row 8, field 'actions': the rows 8 to 16" in str(
        second.error
    )
    for episode, undamaged in ((first, expected[0]), (third, expected[2])):
        np.testing.assert_array_equal(episode.steps["action"], undamaged.steps["action"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["observations", "next_observations"])
def test_damage_to_compared_observations_is_confined_to_its_episodes(tmp_path, name):
    path = write_small_chunks(tmp_path / "a.hdf5", next_observations=True)
    arrays = read_arrays(path)
    damage_chunk(path, name, 1)
    source = D4rlSource(path)
    assert source.source_info.metadata["d4rl"]["rows_with_other_next_observation"] is None
    first, second, third = reading.episodes(source, "train", "0-3")
    assert f"episode a-0000001, row 8, field '{name}': the rows 8 to 16" in str(second.error)
    for episode, end in ((first, 8), (third, 24)):
        final = arrays["next_observations"][end - 1]
        np.testing.assert_array_equal(episode.steps["observation"][-1], final)
    with pytest.warns(UserWarning, match="1 episode is damaged and left out"):
        builder = convert(source, name="a", data_dir=tmp_path, skip_damaged=True)
    assert builder.info.splits["train"].num_examples == 2


def test_fields_without_damage_can_be_read(tmp_path):
    path = write_small_chunks(tmp_path / "a.hdf5", next_observations=True)
    intact = read_episodes(D4rlSource(path))[1].steps
    for name, field in (("actions", "action"), ("observations", "observation")):
        damage_chunk(path, name, 1)
        episodes = Episodes(D4rlSource(path))
        columns = episodes.columns(1, ["reward", "is_terminal", "discount"])
        for key, column in columns.items():
            np.testing.assert_array_equal(column, intact[key], strict=True)
        with pytest.raises(SourceError, match=f"row 8, field '{name}': the rows 8 to 16"):
            episodes.columns(1, [field])


def test_damage_to_flags_names_the_rows(tmp_path):
    path = write_small_chunks(tmp_path / "a.hdf5")
    damage_chunk(path, "terminals", 2)
    with pytest.raises(SourceError, match="row 16, field 'terminals': the rows 16 to 24 cannot"):
        D4rlSource(path)


@pytest.mark.slow
def test_a_conversion_skips_damaged_episodes_on_request(tmp_path):
    path = write_small_chunks(tmp_path / "a.hdf5")
    damage_chunk(path, "actions", 1)
    with pytest.raises(SourceError, match="field 'actions': the rows 8 to 16 cannot be read: OS"):
        convert(D4rlSource(path), name="a", data_dir=tmp_path)
    assert not (tmp_path / "a" / "1.0.0").exists()
    with pytest.warns(UserWarning, match="1 episode is damaged and left out"):
        builder = convert(D4rlSource(path), name="b", data_dir=tmp_path, skip_damaged=True)
    assert builder.info.splits["train"].num_examples == 2


@pytest.mark.parametrize("name", ["observation", "action", "reward"])
def test_numbers_that_are_not_finite_are_refused_in_a_conversion(tmp_path, name):
    arrays = raw_d4rl.without(raw_d4rl.transitions((4, 6), 3, 2), "next_observations")
    arrays[f"{name}s"][5] = np.inf
    path = write_small(tmp_path / "a.hdf5", **arrays, next_observations=None)
    with pytest.raises(SourceError, match=rf"a.hdf5, episode a-0000001, row 5, field '{name}"):
        convert(D4rlSource(path), name="a", data_dir=tmp_path)


# --- Datasets ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_config_converts_its_dataset(tmp_path):
    path = raw_d4rl.write_family(tmp_path, "hopper_medium_replay-v2")
    config = "hopper-medium-replay-v2"
    check_conversion(lambda: D4rlSource(path), tmp_path, builder=RldsD4rl, path=path, config=config)


def test_configs_have_urls_and_checksums():
    names = [config.name for config in RldsD4rl.BUILDER_CONFIGS]
    assert len(names) == len(set(names)) == 156
    builder = RldsD4rl(config="walker2d-medium-replay-v0")
    assert builder.url().endswith("/gym_mujoco/walker_mixed.hdf5")
    assert builder.raw_name() == "walker_mixed.hdf5"
    assert RldsD4rl.url_infos[builder.url()].checksum.startswith("d23588d4e07e")
    urls = {RldsD4rl(config=name).url() for name in names[1:]}
    assert RldsD4rl.url_infos.keys() <= urls
    assert RldsD4rl().url() is None


@pytest.mark.slow
def test_files_in_the_manual_dir_are_converted(tmp_path):
    import tensorflow_datasets as tfds

    manual_dir = tmp_path / "manual"
    manual_dir.mkdir()
    raw_d4rl.write_family(manual_dir, "hopper_medium-v2")
    builder = RldsD4rl(config="hopper-medium-v2", data_dir=tmp_path)
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(manual_dir=manual_dir)
    )
    assert builder.info.metadata["d4rl"]["dataset"] == "hopper-medium-v2"
    shutil.rmtree(manual_dir)
    dataset = tfds.load("rlds_d4rl/hopper-medium-v2", data_dir=tmp_path, split="train")
    assert sorted(len(list(episode["steps"])) for episode in dataset) == [4, 5, 6]


@pytest.mark.slow
def test_custom_boundary_rules_are_kept_in_a_conversion(tmp_path):
    config = D4rlConfig(name="windows")
    path = write_small(tmp_path / "a.hdf5")
    options = {"boundary": ("file", "length"), "length": 5}
    builder = RldsD4rl(path=path, config=config, data_dir=tmp_path, **options)
    builder.download_and_prepare()
    assert builder.info.splits["train"].num_examples == 2
    assert builder.info.metadata["d4rl"]["boundary"] == ["file", "length"]


def test_files_of_an_object_store_are_read(tmp_path, monkeypatch):
    """HDF5 reads opened files, and they are closed in the end."""
    path = raw_d4rl.write_mujoco_like(tmp_path / "hopper_medium-v2.hdf5", rows=50, episode_length=9)
    local = D4rlSource(path)
    expected = [local.read("train", index) for index in range(local.num_episodes("train"))]
    files = []

    def open_and_note(path):
        files.append(Path(path).open("rb"))  # noqa: SIM115
        return files[-1]

    monkeypatch.setattr(hdf5_access, "is_local", lambda path: False)
    monkeypatch.setattr(hdf5_access, "open_binary", open_and_note)
    remote = D4rlSource(path)
    for index, episode in enumerate(expected):
        actual = remote.read("train", index)
        np.testing.assert_array_equal(actual.steps["observation"], episode.steps["observation"])
    assert files
    assert all(file.closed for file in files)
