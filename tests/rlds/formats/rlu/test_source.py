"""Common behaviour of all datasets of RL Unplugged. Each has its own file, too."""

import numpy as np
import pytest
import raw_rlu
import tensorflow_datasets as tfds
from conversions import check_conversion
from fast_share import one_in

import rlds.sources
from rlds.sources import DamagedEpisode, SourceError
from tfds_builders import (
    RldsRluAtari,
    RldsRluAtariTransitions,
    RldsRluBsuite,
    RldsRluControlSuite,
    RldsRluControlSuiteWindows,
    RldsRluDmlab,
    RldsRluLocomotion,
    RldsRluLocomotionWindows,
    RldsRluRwrl,
    convert,
)
from tfds_builders.features import features_of

RluAtariSource = rlds.sources.formats()["rlu_atari"].load()
RluAtariTransitionsSource = rlds.sources.formats()["rlu_atari_transitions"].load()
RluBsuiteSource = rlds.sources.formats()["rlu_bsuite"].load()
RluControlSuiteSource = rlds.sources.formats()["rlu_control_suite"].load()
RluControlSuiteWindowsSource = rlds.sources.formats()["rlu_control_suite_windows"].load()
RluDmlabSource = rlds.sources.formats()["rlu_dmlab"].load()
RluLocomotionSource = rlds.sources.formats()["rlu_locomotion"].load()
RluLocomotionWindowsSource = rlds.sources.formats()["rlu_locomotion_windows"].load()
RluRwrlSource = rlds.sources.formats()["rlu_rwrl"].load()

PRODUCTS = {
    "atari": (RluAtariSource, RldsRluAtari, raw_rlu.atari_episodes),
    "dmlab": (RluDmlabSource, RldsRluDmlab, raw_rlu.dmlab_episodes),
    "rwrl": (RluRwrlSource, RldsRluRwrl, raw_rlu.rwrl_episodes),
    "control_suite": (RluControlSuiteSource, RldsRluControlSuite, raw_rlu.control_suite_episodes),
    "locomotion": (RluLocomotionSource, RldsRluLocomotion, raw_rlu.locomotion_episodes),
    "atari_transitions": (
        RluAtariTransitionsSource,
        RldsRluAtariTransitions,
        raw_rlu.atari_transitions,
    ),
    "control_suite_windows": (
        RluControlSuiteWindowsSource,
        RldsRluControlSuiteWindows,
        raw_rlu.control_suite_windows,
    ),
    "locomotion_windows": (
        RluLocomotionWindowsSource,
        RldsRluLocomotionWindows,
        raw_rlu.locomotion_windows,
    ),
    "bsuite": (RluBsuiteSource, RldsRluBsuite, raw_rlu.bsuite_windows),
}


def read(source):
    return [episode for file in source.parts("train") for episode in source.episodes("train", file)]


def write_suite(directory, episodes=None, **kwargs):
    """Writes a folder of the control suite, the simplest product."""
    episodes = raw_rlu.control_suite_episodes() if episodes is None else episodes
    return raw_rlu.write_files(directory, "train", episodes, **kwargs)


# --- Conversion ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("product", one_in(3, PRODUCTS))
def test_a_conversion_has_all_episodes(tmp_path, product):
    make_source, builder, make_episodes = PRODUCTS[product]
    compression = "" if product == "rwrl" else "GZIP"
    episodes = make_episodes()
    raw_rlu.write_files(tmp_path / "raw", "train", episodes, compression=compression)
    dataset = check_conversion(
        lambda: make_source(tmp_path / "raw"),
        tmp_path / "made",
        builder=builder,
        path=tmp_path / "raw",
    )
    assert dataset.info.splits["train"].num_examples == len(episodes)
    assert dataset.info.metadata["raw_files"]["train"]["of"] == 2


@pytest.mark.parametrize(
    ("builder", "config", "directory", "prefix", "num_files"),
    [
        (RldsRluAtari, "Pong_run_2", "atari_episodes_ordered/Pong", "run_2", 50),
        (RldsRluAtari, "Gravitar_run_5", "atari_episodes_ordered/Gravitar", "run_5", 49),
        (
            RldsRluDmlab,
            "seekavoid_arena_01_snapshot_1_eps_0.1",
            "dmlab/seekavoid_arena_01/snapshot_1_eps_0.1",
            "tfrecord",
            500,
        ),
        (
            RldsRluRwrl,
            "humanoid_walk_combined_challenge_easy_100_percent",
            "rwrl/combined_challenge_easy/humanoid/walk/100_percent",
            "episodes.tfrecord",
            769,
        ),
        (RldsRluControlSuite, "fish_swim", "dm_control_suite_episodes/fish_swim", "train", 100),
        (RldsRluLocomotion, "rodent_mazes", "dm_locomotion_episodes/rodent_mazes", "train", 100),
        (RldsRluAtariTransitions, "Pong_run_2", "atari/Pong", "run_2", 100),
        (RldsRluControlSuiteWindows, "fish_swim", "dm_control_suite/fish_swim", "train", 100),
        (
            RldsRluLocomotionWindows,
            "rodent_mazes_seq40",
            "dm_locomotion/rodent_mazes/seq40",
            "train",
            100,
        ),
        (
            RldsRluBsuite,
            "mountain_car_noise_0.3_run_4_full_valid",
            "bsuite/mountain_car/0_0.3",
            "4_full_valid",
            1,
        ),
    ],
)
def test_configs_have_urls_of_their_files(tmp_path, builder, config, directory, prefix, num_files):
    builder_config = builder.builder_configs[config]
    assert (builder_config.directory, builder_config.prefix, builder_config.num_files) == (
        directory,
        prefix,
        num_files,
    )
    instance = builder(config=config, data_dir=tmp_path)
    assert instance.url() == f"gs://rl_unplugged/{directory}"
    assert f"{prefix}-00000-of-{num_files:05d}" in builder_config.description


def test_builders_have_a_config_for_each_dataset_and_one_for_any_other():
    counts = {builder.name: len(builder.BUILDER_CONFIGS) for _, builder, _ in PRODUCTS.values()}
    assert counts == {
        "rlds_rlu_atari": 46 * 5 + 1,
        "rlds_rlu_dmlab": 5 * 3 + 8 + 1,
        "rlds_rlu_rwrl": 40 + 1,
        "rlds_rlu_control_suite": 9 + 1,
        "rlds_rlu_locomotion": 7 + 1,
        "rlds_rlu_atari_transitions": 46 * 5 + 1,
        "rlds_rlu_control_suite_windows": 9 + 1,
        "rlds_rlu_locomotion_windows": 7 + 3 + 1,
        "rlds_rlu_bsuite": 3 * 6 * 5 * 3 + 1,
    }
    assert {builder.BUILDER_CONFIGS[0].name for _, builder, _ in PRODUCTS.values()} == {"files"}


@pytest.mark.slow
def test_a_config_takes_its_files_from_the_manual_dir(tmp_path):
    folder = tmp_path / "manual" / "atari_episodes_ordered" / "Pong"
    for run, seed in (("run_1", 1), ("run_2", 2)):
        raw_rlu.write_files(folder, run, raw_rlu.atari_episodes((3, 2), seed=seed))
    builder = RldsRluAtari(config="Pong_run_2", data_dir=tmp_path / "data")
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(manual_dir=tmp_path / "manual")
    )
    assert list(builder.info.metadata["raw_files"]) == ["run_2"]
    assert builder.info.splits["train"].num_examples == 2


@pytest.mark.slow
def test_a_conversion_skips_damaged_episodes_on_request(tmp_path):
    episodes = raw_rlu.control_suite_episodes()
    episodes[1]["step_type"][2] = 2.0
    write_suite(tmp_path / "raw", episodes)
    with pytest.raises(SourceError, match="00000-of-00002, episode 1, row 2, field 'step_type'"):
        convert(RluControlSuiteSource(tmp_path / "raw"), name="strict", data_dir=tmp_path)
    with pytest.warns(UserWarning, match="1 episode is damaged and left out"):
        builder = convert(
            RluControlSuiteSource(tmp_path / "raw"),
            name="lenient",
            data_dir=tmp_path,
            skip_damaged=True,
        )
    assert builder.info.splits["train"].num_examples == 3


# --- Files ---------------------------------------------------------------------------------------


def test_keys_name_the_file_and_the_record(tmp_path):
    write_suite(tmp_path)
    source = RluControlSuiteSource(tmp_path)
    assert [episode.key for episode in read(source)] == [
        "train-00000-of-00002:0",
        "train-00000-of-00002:1",
        "train-00001-of-00002:0",
        "train-00001-of-00002:1",
    ]
    last = read(source)[-1].origin
    assert (last.file, last.begin, last.end) == ("train-00001-of-00002", 1, 2)


def test_a_source_reads_selected_files(tmp_path):
    first, second = write_suite(tmp_path)
    assert RluControlSuiteSource(second).parts("train") == ["train-00001-of-00002"]
    assert RluControlSuiteSource([second, first]).parts("train") == [
        "train-00001-of-00002",
        "train-00000-of-00002",
    ]
    assert RluControlSuiteSource([second]).source_info.metadata["raw_files"] == {
        "train": {"of": 2, "found": 1}
    }


def test_files_of_equal_names_are_distinguished_by_their_folders(tmp_path):
    files = [write_suite(tmp_path / run / "x", num_files=1)[0] for run in "ab"]
    assert RluControlSuiteSource(files).parts("train") == [
        "a/x/train-00000-of-00001",
        "b/x/train-00000-of-00001",
    ]
    with pytest.raises(ValueError, match="a file is listed twice"):
        RluControlSuiteSource([files[0], files[0]])


def test_unrelated_files_of_a_folder_are_ignored(tmp_path):
    write_suite(tmp_path)
    write_suite(tmp_path / "other")
    (tmp_path / "README.txt").write_text("hello")
    assert len(RluControlSuiteSource(tmp_path).parts("train")) == 2


def test_errors_of_missing_files_list_the_files_of_the_folder(tmp_path):
    write_suite(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"such as run_1-00000-of-.* it has \['train-"):
        RluControlSuiteSource(tmp_path, prefix="run_1")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        RluControlSuiteSource(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="files: expected at least one file"):
        RluControlSuiteSource([])


def test_files_without_records_are_refused(tmp_path):
    write_suite(tmp_path, [])
    with pytest.raises(SourceError, match="the files have no records"):
        RluControlSuiteSource(tmp_path)


def test_an_empty_file_has_no_episodes(tmp_path):
    write_suite(tmp_path, raw_rlu.control_suite_episodes((4,)), num_files=2)
    assert len(read(RluControlSuiteSource(tmp_path))) == 1


def test_repeated_ids_are_reported(tmp_path):
    episodes = raw_rlu.control_suite_episodes()
    episodes[3]["episode_id"] = episodes[0]["episode_id"]
    write_suite(tmp_path, episodes)
    repeated = {(-(2**60),): ["train-00000-of-00002:0", "train-00001-of-00002:1"]}
    source = RluControlSuiteSource(tmp_path)
    assert source.repeated_ids() == repeated
    assert len({episode.key for episode in read(source)}) == 4
    with pytest.raises(SourceError, match=r"2 episodes have the id .* train-00001-of-00002:1"):
        RluControlSuiteSource(tmp_path, require_unique_ids=True)


# --- Records -------------------------------------------------------------------------------------


def test_unknown_fields_are_kept(tmp_path):
    episodes = raw_rlu.control_suite_episodes((5, 4))
    for episode in episodes:
        rows = len(episode["reward"])
        episode["observation/arm/touch"] = np.arange(2 * rows, dtype=np.float32)
        episode["policy/logits"] = np.arange(3 * rows, dtype=np.float32)
        episode["level_name"] = [b"easy"]
        episode["notes"] = [f"{row}".encode() for row in range(rows)]
    write_suite(tmp_path, episodes)
    first = read(RluControlSuiteSource(tmp_path))[0]
    assert first.steps["observation"]["arm"]["touch"].tolist()[4] == [8, 9]
    assert first.steps["policy"]["logits"].shape == (5, 3)
    assert first.steps["notes"].tolist() == [b"0", b"1", b"2", b"3", b"4"]
    assert first.metadata["level_name"] == b"easy"


def test_the_first_record_with_several_rows_determines_the_step_fields(tmp_path):
    episodes = raw_rlu.control_suite_episodes((5, 4))
    short = {name: values[:1] for name, values in episodes[1].items()}
    write_suite(tmp_path, [short, episodes[0]], num_files=1)
    first, second = read(RluControlSuiteSource(tmp_path))
    assert first.num_steps == 1
    assert first.metadata["timestamp"] == episodes[1]["timestamp"]
    assert not first.complete
    assert second.num_steps == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": None}, r"episode 0, field 'reward': no such field"),
        ({"action": None}, r"field 'action': missing; the record has \['discount'"),
        ({"action": np.zeros(7, np.float32)}, r"'action': 7 values, expected a multiple of 5"),
        ({"discount": np.ones(1, np.float32)}, r"'discount': 1 values, expected a multiple of 5"),
        ({"observation/x": [b"a", b"b"]}, r"'observation/x': 2 values, expected a multiple of 5"),
        ({"notes": [b"a"] * 10}, r"'notes': 2 strings per row, expected one"),
        ({"notes": []}, r"'notes': 0 values, expected a multiple of 5"),
        ({"reward": [b"1"] * 5}, r"'reward': strings, expected numbers"),
        ({"step_type": [b"1"] * 5}, r"'step_type': strings, expected numbers"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_malformed_first_record_is_an_error_of_the_source(tmp_path, change, message):
    (episode,) = raw_rlu.control_suite_episodes((5,))
    episode.update(change)
    write_suite(tmp_path, [{k: v for k, v in episode.items() if v is not None}], num_files=1)
    with pytest.raises(SourceError, match=message):
        RluControlSuiteSource(tmp_path)


def test_a_field_with_a_reserved_name_is_an_error_of_the_source(tmp_path):
    (episode,) = raw_rlu.control_suite_episodes((5,))
    write_suite(tmp_path, [{**episode, "episode_id/x": episode["episode_id"]}], num_files=1)
    with pytest.raises(SourceError, match="the name 'episode_id' is reserved"):
        features_of(RluControlSuiteSource(tmp_path))


def test_a_file_without_tensorflow_examples_is_refused(tmp_path):
    (file,) = write_suite(tmp_path, num_files=1)
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(file)) as writer:
        writer.write(b"\xff\xff\xff")
    with pytest.raises(SourceError, match=r"00001, episode 0: no tf.train.Example"):
        RluControlSuiteSource(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": None}, "field 'reward': no such field, or it is empty"),
        ({"timestamp": None}, "field 'timestamp': no such field, but the first record"),
        ({"more": np.ones(1, np.float32)}, "field 'more': the first record has no such field"),
        ({"action": np.zeros(7, np.float32)}, "'action': 7 values, expected 2 for each of 4 rows"),
        ({"action": np.zeros(8, np.int64)}, "'action': int64 numbers, but float32 numbers in the"),
        ({"action": [b""] * 8}, "'action': strings, but float32 numbers in the first record"),
        ({"reward": np.array([0, 1, np.nan, 2], np.float32)}, "row 2, field 'reward': nan, expec"),
        ({"discount": np.array([1, 1, 1, np.inf], np.float32)}, "row 3, field 'discount': inf, e"),
        ({"action": []}, "field 'action': 0 values, expected 2 for each of 4 rows"),
        ({"step_type": np.array([0, 1, 0, 2], np.float32)}, "row 2, field 'step_type': 0, expe"),
        ({"step_type": np.array([1, 1, 1, 2], np.float32)}, "row 0, field 'step_type': 1, expe"),
        ({"step_type": np.array([0, 1, 1, 0], np.float32)}, "row 3, field 'step_type': 0, expe"),
    ],
    ids=str,
)
def test_a_record_that_differs_from_the_first_is_damaged(tmp_path, change, message):
    episodes = raw_rlu.control_suite_episodes((5, 4, 6))
    fields = {**episodes[1], **change}
    episodes[1] = {name: values for name, values in fields.items() if values is not None}
    write_suite(tmp_path, episodes, num_files=1)
    first, damaged, third = read(RluControlSuiteSource(tmp_path))
    assert isinstance(damaged, DamagedEpisode)
    assert damaged.key == "train-00000-of-00001:1"
    assert not damaged.ends_part
    assert message in str(damaged.error)
    assert damaged.error.file == "train-00000-of-00001"
    assert (first.num_steps, third.num_steps) == (5, 6)


def test_a_truncated_file_ends_with_damage(tmp_path):
    (file,) = write_suite(tmp_path, num_files=1, compression="")
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2 + 30])
    *intact, damaged = read(RluControlSuiteSource(tmp_path))
    assert intact
    assert damaged.ends_part
    assert damaged.key == f"train-00000-of-00001:{len(intact)}"
    assert "the file ends within the record" in str(damaged.error)
    source = RluControlSuiteSource(tmp_path)
    assert list(source.episodes("train", "train-00000-of-00001", damaged.key)) == []


def test_damage_before_the_resumed_episode_is_not_reported_again(tmp_path):
    (file,) = write_suite(tmp_path, num_files=1, compression="")
    source = RluControlSuiteSource(tmp_path)
    data = bytearray(file.read_bytes())
    length = int.from_bytes(data[:8], "little")
    data[16 + length + 20] ^= 1  # In the second record.
    file.write_bytes(bytes(data))
    _, damaged, third, fourth = read(source)
    assert isinstance(damaged, DamagedEpisode)
    keys = [
        [episode.key for episode in source.episodes("train", file.name, key)]
        for key in (damaged.key, third.key)
    ]
    assert keys == [[third.key, fourth.key], [fourth.key]]


def test_an_unknown_alignment_is_refused(tmp_path):
    write_suite(tmp_path)
    with pytest.raises(ValueError, match=r"got 'ras', expected one of \('rsa', 'sar'\)"):
        RluControlSuiteSource(tmp_path, alignment="ras")
