import gzip

import numpy as np
import pytest
import raw_atari_dqn_replay as raw
import tensorflow as tf
from conversions import check_conversion
from hypothesis import given, settings
from hypothesis import strategies as st

import rlds.sources
from rlds.sources import DamagedEpisode, SourceError
from rlds.sources.testing import check_source
from tfds_builders import BucketConfig, RldsAtariDqnReplay, convert

AtariDqnReplaySource = rlds.sources.formats()["atari_dqn_replay"].load()

RUN = "Pong/1"


def make_episodes(*lengths, **kwargs):
    """Returns episodes of these lengths; a time limit ends those of negative lengths."""
    return [
        raw.episode(abs(length), terminal=length > 0, seed=index, **kwargs)
        for index, length in enumerate(lengths)
    ]


def write(directory, episodes, **kwargs):
    folder = directory / "Pong" / "1" / "replay_logs"
    rows = raw.record(episodes)
    raw.write_run(folder, rows, **{"capacity": len(rows["action"]), **kwargs})
    return folder


def read(directory, **kwargs):
    source = AtariDqnReplaySource(directory, **kwargs)
    return list(source.episodes("train", RUN))


def decode_frames(episode):
    return np.stack([tf.io.decode_png(f).numpy()[..., 0] for f in episode.steps["observation"]])


def check_equal(episode, expected, *, begin=0, end=None):
    """Compares an episode with a range of the steps of a recorded one."""
    end = len(expected.actions) if end is None else end
    steps = episode.steps
    is_terminal = expected.terminal and end == len(expected.actions)
    frames = decode_frames(episode)
    assert episode.num_steps == end - begin
    assert not episode.final_observation_known
    assert episode.truncated == (not is_terminal)
    for t in range(end - begin):
        np.testing.assert_array_equal(frames[t], expected.frames[begin + t])
        assert steps["action"][t] == expected.actions[begin + t]
        assert steps["reward"][t] == expected.rewards[begin + t]
        is_end = is_terminal and begin + t == len(expected.actions) - 1
        assert steps["discount"][t] == (0 if is_end else 1)
        assert steps["is_terminal"][t] == is_end
    assert steps["action"].dtype == np.int32
    assert steps["reward"].dtype == np.float32


# --- Episodes ------------------------------------------------------------------------------------


def test_a_run_in_one_checkpoint_is_read(tmp_path):
    episodes = make_episodes(5, -9, 6)
    write(tmp_path, episodes)
    actual = read(tmp_path)
    for episode, expected in zip(actual, episodes, strict=True):
        check_equal(episode, expected)
        assert episode.complete
    assert [episode.key for episode in actual] == ["Pong/1:0:3", "Pong/1:0:11", "Pong/1:0:23"]
    assert [(e.origin.file, e.origin.begin, e.origin.end) for e in actual] == [
        (RUN, 3, 8),
        (RUN, 11, 20),
        (RUN, 23, 29),
    ]
    assert actual[1].metadata == {
        "game": "Pong",
        "run": "1",
        "checkpoint": 0,
        "row": 11,
        "padding_rows": 3,
        "blank_rows": 0,
        "spans_checkpoints": False,
    }
    assert max(abs(e.steps["reward"]).max() for e in actual) == 400  # Rewards are not clipped.


@pytest.mark.parametrize("with_add_count", [True, False])
def test_episodes_that_span_checkpoints_are_joined(tmp_path, with_add_count):
    episodes = make_episodes(5, 9, -6, 16)  # With padding four times 12 rows.
    write(tmp_path, episodes, capacity=12, with_add_count=with_add_count)
    actual = read(tmp_path)
    for episode, expected in zip(actual, episodes, strict=True):
        check_equal(episode, expected)
    spans = [bool(episode.metadata["spans_checkpoints"]) for episode in actual]
    assert spans == [False, True, True, True]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kwargs",
    [
        {"capacity": 12, "every": 12, "offset": -1},  # The oldest row is the last of the arrays.
        {"capacity": 12, "every": 12, "offset": -7},
        {"capacity": 12, "every": 7},  # Most rows are in two checkpoints.
        {"capacity": 1000, "every": 10},  # The buffer is never full.
        {"capacity": 300, "every": 290},
    ],
    ids=str,
)
def test_episodes_are_read_wherever_the_oldest_row_is(tmp_path, kwargs):
    episodes = make_episodes(5, 9, -6, 21, 300 if kwargs["capacity"] == 300 else 4)
    write(tmp_path, episodes, **kwargs)
    actual = read(tmp_path)
    for episode, expected in zip(actual, episodes, strict=True):
        check_equal(episode, expected)
        assert episode.complete
    begins = np.cumsum([3, *(len(episode.actions) + 3 for episode in episodes)])
    assert [episode.origin.begin for episode in actual] == begins[:-1].tolist()


@pytest.mark.slow
@given(
    st.lists(st.integers(-8, 8).filter(bool), min_size=1, max_size=5),
    st.integers(4, 30),
    st.integers(1, 30),
)
@settings(max_examples=15, deadline=None)
def test_episodes_do_not_depend_on_the_size_of_checkpoints(tmp_path_factory, lengths, size, every):
    directory = tmp_path_factory.mktemp("run")
    episodes = make_episodes(*lengths, 5, shape=(2, 2))  # The last one is complete.
    write(directory, episodes, capacity=size, every=min(every, size))
    for episode, expected in zip(read(directory), episodes, strict=True):
        check_equal(episode, expected)
        assert episode.complete


def test_the_end_of_the_last_checkpoint_cuts_an_episode(tmp_path):
    episodes = make_episodes(5, -9)
    write(tmp_path, episodes)
    complete, cut = read(tmp_path)
    assert complete.complete
    check_equal(cut, episodes[1])
    assert cut.truncated
    assert not cut.complete


@pytest.mark.parametrize("with_add_count", [True, False])
def test_a_missing_checkpoint_cuts_the_episodes_at_its_edges(tmp_path, with_add_count):
    episodes = make_episodes(5, 25, 7)
    folder = write(tmp_path, episodes, capacity=15, with_add_count=with_add_count)
    for file in folder.glob("*_ckpt.1.gz"):
        file.unlink()
    first, before, after, last = read(tmp_path)[:4]
    check_equal(first, episodes[0])
    check_equal(before, episodes[1], end=4)  # Rows 11 to 15.
    assert (before.truncated, before.complete) == (True, False)
    check_equal(after, episodes[1], begin=19)  # Rows 30 to 36.
    assert (after.truncated, after.complete) == (False, False)
    assert after.key == "Pong/1:2:0"
    check_equal(last, episodes[2])
    assert last.complete


def test_a_recording_without_its_first_checkpoint_begins_with_an_incomplete_episode(tmp_path):
    episodes = make_episodes(12, 7)
    folder = write(tmp_path, episodes, capacity=10)
    for file in folder.glob("*_ckpt.0.gz"):
        file.unlink()
    first, second = read(tmp_path)
    check_equal(first, episodes[0], begin=7)
    assert not first.complete
    assert second.complete


def test_an_episode_after_a_gap_is_complete_if_it_has_padding(tmp_path):
    episodes = make_episodes(12, 12)
    folder = write(tmp_path, episodes, capacity=15)
    for file in folder.glob("*_ckpt.0.gz"):
        file.unlink()
    (only,) = read(tmp_path)
    check_equal(only, episodes[1])
    assert only.complete


# --- Rows of zeros -------------------------------------------------------------------------------


@pytest.mark.parametrize("black", [1, 3, 5])
def test_black_frames_at_the_beginning_are_kept(tmp_path, black):
    episodes = [*make_episodes(5), raw.episode(9, terminal=True, black=black, seed=7)]
    write(tmp_path, episodes)
    for episode, expected in zip(read(tmp_path), episodes, strict=True):
        check_equal(episode, expected)
    assert episode.metadata["padding_rows"] == 3
    assert episode.metadata["blank_rows"] == black


@pytest.mark.parametrize("black", [1, 2, 4, 5])
def test_black_frames_within_an_episode_are_kept(tmp_path, black):
    (expected,) = make_episodes(12)
    for column in (expected.frames, expected.actions, expected.rewards):
        column[4 : 4 + black] = 0
    write(tmp_path, [expected])
    (episode,) = read(tmp_path)
    check_equal(episode, expected)
    assert episode.metadata["blank_rows"] == black


def test_the_time_limit_divides_episodes_with_black_frames_between(tmp_path):
    episodes = [*make_episodes(-9), raw.episode(6, terminal=True, black=2, seed=7)]
    write(tmp_path, episodes)
    # Without the time limit, the five rows of zeros are frames of one episode,
    (merged,) = read(tmp_path)
    assert (merged.num_steps, merged.metadata["blank_rows"]) == (9 + 3 + 6, 5)
    # with it, they are padding and black frames of the second one.
    for episode, expected in zip(read(tmp_path, max_episode_steps=9), episodes, strict=True):
        check_equal(episode, expected)


def test_black_frames_with_an_action_a_reward_or_an_end_are_not_blank_rows(tmp_path):
    (expected,) = make_episodes(9)
    expected.frames[:] = 0
    expected.actions[:] = [0, 1, 0, 0, 2, 0, 0, 0, 0]
    expected.rewards[:] = [0, 0, 0, 5, 0, 0, 0, 6, 0]
    write(tmp_path, [expected])
    (episode,) = read(tmp_path)
    check_equal(episode, expected)
    assert episode.metadata["blank_rows"] == 4


def test_rows_of_zeros_are_frames_if_fewer_than_the_padding(tmp_path):
    (expected,) = make_episodes(6)
    folder = tmp_path / "Pong" / "1" / "replay_logs"
    rows = raw.record([expected], padding=2)
    raw.write_run(folder, rows, capacity=8)
    (episode,) = read(tmp_path)
    assert (episode.num_steps, episode.metadata["blank_rows"]) == (8, 2)
    assert episode.metadata["padding_rows"] == 0
    (episode,) = read(tmp_path, stack_size=3)
    check_equal(episode, expected)


def test_padding_at_the_end_is_no_episode(tmp_path):
    folder = tmp_path / "Pong" / "1" / "replay_logs"
    rows = raw.record(make_episodes(5, 5))
    cut = {name: column[:10] for name, column in rows.items()}  # Two rows of the second padding.
    raw.write_run(folder, cut, capacity=10)
    (only,) = read(tmp_path)
    assert only.complete


def test_without_stacks_there_is_no_padding(tmp_path):
    episodes = make_episodes(5, 4)
    rows = raw.record(episodes, padding=0)
    raw.write_run(tmp_path / "Pong" / "1", rows, capacity=9)
    for episode, expected in zip(read(tmp_path, stack_size=1), episodes, strict=True):
        check_equal(episode, expected)


# --- Runs, keys, resumption ----------------------------------------------------------------------


@pytest.mark.slow
def test_a_conversion_has_all_episodes_and_checkpoints(tmp_path):
    for run, lengths in (("1", (5, -9, 6)), ("2", (300, 4))):
        rows = raw.record(make_episodes(*lengths))
        raw.write_run(tmp_path / "raw" / "Pong" / run / "replay_logs", rows, capacity=12)
    dataset = check_conversion(
        lambda: AtariDqnReplaySource(tmp_path / "raw"),
        tmp_path / "made",
        builder=RldsAtariDqnReplay,
        path=tmp_path / "raw",
    )
    assert dataset.info.splits["train"].num_examples == 5
    assert dataset.info.metadata["checkpoints"]["Pong/1"] == [0, 1, 2]
    assert dataset.info.metadata["conversion"]["splits"]["train"]["raw"]["terminal_rows"] == 4
    assert dataset.info.features["steps"]["observation"].shape == (7, 5, 1)


@pytest.mark.parametrize("subfolder", ["", "Pong", "Pong/1", "Pong/1/replay_logs"])
def test_names_of_runs_do_not_depend_on_the_opened_folder(tmp_path, subfolder):
    write(tmp_path, make_episodes(5))
    source = AtariDqnReplaySource(tmp_path / subfolder)
    assert source.parts("train") == [RUN]
    (episode,) = source.episodes("train", RUN)
    assert (episode.key, episode.metadata["game"]) == ("Pong/1:0:3", "Pong")


@pytest.mark.slow
@pytest.mark.parametrize("every", [12, 11, 7])
def test_reading_resumes_after_any_episode(tmp_path, every):
    episodes = [*make_episodes(5, -9, 6), *make_episodes(20, black=5), *make_episodes(-7, 4)]
    write(tmp_path, episodes, capacity=12, every=every)
    source = AtariDqnReplaySource(tmp_path)
    check_source(source)
    fractions = [episode.fraction for episode in source.episodes("train", RUN)]
    assert fractions == sorted(fractions)
    assert fractions[-1] <= 1.0


def test_totals_are_counted_in_the_arrays(tmp_path):
    episodes = make_episodes(5, -9, 6)
    write(tmp_path, episodes, capacity=12, every=7)
    assert AtariDqnReplaySource(tmp_path).capabilities.totals("train") == {
        "terminal_rows": 2,
        "reward_rows": sum(np.count_nonzero(episode.rewards) for episode in episodes),
    }


def test_configs_have_the_urls_of_the_runs(tmp_path):
    builder = RldsAtariDqnReplay(config="MontezumaRevenge_run_3", data_dir=tmp_path)
    assert builder.url() == "gs://atari-replay-datasets/dqn/MontezumaRevenge/3"
    assert builder.raw_name() == "MontezumaRevenge/3"
    assert len(RldsAtariDqnReplay.BUILDER_CONFIGS) == 60 * 5 + 1


@pytest.mark.slow
def test_the_builder_accepts_a_stack_size(tmp_path):
    rows = raw.record(make_episodes(5, 4), padding=1)
    raw.write_run(tmp_path / "raw" / "Pong" / "1", rows, capacity=11)
    config = BucketConfig(name="stack_of_2")
    builder = RldsAtariDqnReplay(
        path=tmp_path / "raw", config=config, data_dir=tmp_path, stack_size=2
    )
    builder.download_and_prepare()
    assert {len(list(e["steps"])) for e in builder.as_dataset("train")} == {4, 5}


# --- Bad input -----------------------------------------------------------------------------------


def change(folder, name, array):
    raw.write_array(folder / f"{name}_ckpt.0.gz", array)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("$store$_action", np.zeros(7, np.int32), "action_ckpt.0.gz: 7 rows, but 8 in Pong/1/"),
        ("$store$_action", np.zeros(8, np.float32), "float32 of shape (8,), expected integers of"),
        ("$store$_reward", np.zeros((8, 1), np.float32), "float32 of shape (8, 1), expected flo"),
        ("$store$_terminal", np.zeros(8, np.int64), "int64 of shape (8,), expected uint8 of sh"),
        ("$store$_observation", np.zeros((8, 7), np.uint8), "uint8 of shape (8, 7), expected uin"),
        ("$store$_observation", np.zeros((8, 7, 5), np.uint16), "uint16 of shape (8, 7, 5), exp"),
        ("$store$_reward", np.array([None] * 8), "an array of pickled objects, expected rows"),
        ("add_count", np.zeros(3, int), "[0, 0, 0], expected one number"),
        ("add_count", np.zeros(()), "float64 of shape (), expected a few integers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arrays_of_the_wrong_kind_are_refused(tmp_path, name, array, message):
    folder = write(tmp_path, make_episodes(5))
    change(folder, name, array)
    with pytest.raises(SourceError) as caught:
        AtariDqnReplaySource(tmp_path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{RUN}/{name}_ckpt.0.gz: ")


def test_files_that_are_no_arrays_are_refused(tmp_path):
    folder = write(tmp_path, make_episodes(5))
    (folder / "$store$_action_ckpt.0.gz").write_bytes(gzip.compress(b"hello, world"))
    with pytest.raises(SourceError, match=r"action_ckpt.0.gz: cannot be read: the magic string"):
        AtariDqnReplaySource(tmp_path)
    (folder / "$store$_action_ckpt.0.gz").write_bytes(b"hello, world")
    with pytest.raises(SourceError, match=r"action_ckpt.0.gz: the gzip data is damaged"):
        AtariDqnReplaySource(tmp_path)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("observation", "(1000000000000, 7, 5)", "bytes are declared, but the"),
        ("observation", "(8, 1000000, 1000000)", "rows of 1,000,000,000,000 bytes, expected 4,194"),
        ("observation", "(8, -7, 5)", "shape (8, -7, 5), expected sizes of 0 or more"),
        ("observation", "(8, 7, 5.0)", "cannot be read"),
        ("observation", "(8, True, 5)", "shape (8, True, 5), expected sizes of 0 or more"),
        ("action", "(1000000000000,)", "bytes are declared, but the"),
        ("action", "((((((" * 40, "cannot be read"),
        ("action", "(8,), 'x': __import__('os')", "cannot be read"),
    ],
)
def test_wrong_array_headers_are_rejected(tmp_path, name, shape, message):
    folder = write(tmp_path, make_episodes(5))
    dtype = "|u1" if name == "observation" else "<i4"
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    content = np.lib.format.magic(1, 0) + len(header).to_bytes(2, "little") + header + bytes(280)
    (folder / f"$store$_{name}_ckpt.0.gz").write_bytes(gzip.compress(content))
    with pytest.raises(SourceError) as caught:
        AtariDqnReplaySource(tmp_path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{RUN}/$store$_{name}_ckpt.0.gz")


def test_checkpoints_of_different_shapes_are_refused(tmp_path):
    folder = write(tmp_path, make_episodes(5, 5), capacity=8)
    raw.write_array(folder / "$store$_observation_ckpt.1.gz", np.zeros((8, 7, 6), np.uint8))
    with pytest.raises(SourceError, match=r"ckpt.1.gz: rows of uint8 and shape \(7, 6\), but of"):
        AtariDqnReplaySource(tmp_path)


@pytest.mark.parametrize("name", ["$store$_observation", "$store$_terminal", "add_count"])
def test_a_missing_file_is_named(tmp_path, name):
    folder = write(tmp_path, make_episodes(5, 5), capacity=8)
    (folder / f"{name}_ckpt.1.gz").unlink()
    with pytest.raises(SourceError, match="the file is missing, but checkpoint") as caught:
        AtariDqnReplaySource(tmp_path)
    assert caught.value.file == f"{RUN}/{name}_ckpt.1.gz"


def test_a_folder_without_checkpoints_is_refused(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=r"no files such as \$store\$_observation_ckpt"):
        AtariDqnReplaySource(tmp_path)
    with pytest.raises(FileNotFoundError, match="is not a directory"):
        AtariDqnReplaySource(tmp_path / "c")


def test_add_counts_that_do_not_grow_are_refused_or_ignored(tmp_path):
    episodes = make_episodes(5, 5)
    folder = write(tmp_path, episodes, capacity=8)
    raw.write_array(folder / "add_count_ckpt.1.gz", np.array(8))
    with pytest.raises(SourceError, match=r"add_count_ckpt.1.gz: 8 rows .* use_add_count=False"):
        AtariDqnReplaySource(tmp_path)
    for episode, expected in zip(read(tmp_path, use_add_count=False), episodes, strict=True):
        check_equal(episode, expected)


def test_an_invalid_range_that_contradicts_add_count_is_refused(tmp_path):
    folder = write(tmp_path, make_episodes(30), capacity=12, every=11)
    raw.write_array(folder / "invalid_range_ckpt.1.gz", np.array([2, 3, 4, 5, 6]))
    with pytest.raises(SourceError, match=r"invalid_range_ckpt.1.gz: .* but add_count says 10"):
        AtariDqnReplaySource(tmp_path)


@pytest.mark.parametrize("name", ["observation", "action", "reward", "terminal"])
def test_a_truncated_file_damages_one_episode_and_reading_continues(tmp_path, name):
    episodes = make_episodes(5, 40, 5)
    folder = write(tmp_path, episodes, capacity=20)
    file = folder / f"$store$_{name}_ckpt.1.gz"
    file.write_bytes(file.read_bytes()[:-8])
    first, damaged, tail, last = read(tmp_path)
    check_equal(first, episodes[0])
    assert isinstance(damaged, DamagedEpisode)
    assert (damaged.key, damaged.ends_part) == ("Pong/1:0:11", False)
    assert f"{RUN}/$store$_{name}_ckpt.1.gz, row 0: the gzip data ends" in str(damaged.error)
    check_equal(tail, episodes[1], begin=29)
    assert not tail.complete
    check_equal(last, episodes[2])
    source = AtariDqnReplaySource(tmp_path)
    for key, keys in ((damaged.key, [tail.key, last.key]), (first.key, [damaged.key, tail.key])):
        actual = [episode.key for episode in source.episodes("train", RUN, key)]
        assert actual[:2] == keys


def test_damage_in_the_last_checkpoint_ends_the_run(tmp_path):
    folder = write(tmp_path, make_episodes(5, 40), capacity=17)
    file = folder / "$store$_observation_ckpt.2.gz"
    file.write_bytes(file.read_bytes()[:-8])
    _, damaged = read(tmp_path)
    assert damaged.ends_part
    with pytest.raises(SourceError, match=r"\$store\$_observation_ckpt.2.gz"):
        convert(AtariDqnReplaySource(tmp_path), name="strict", data_dir=tmp_path / "data")


def test_a_long_episode_before_the_damage_is_complete(tmp_path):
    episodes = make_episodes(300, 400)  # More rows than are read at a time.
    folder = write(tmp_path, episodes)
    file = folder / "$store$_reward_ckpt.0.gz"
    file.write_bytes(file.read_bytes()[:-8])
    first, damaged = read(tmp_path)
    check_equal(first, episodes[0])
    assert (damaged.key, damaged.error.row) == ("Pong/1:0:306", 512)


@pytest.mark.parametrize(
    ("rows", "message"),
    [(7, "the data ends in row 7, but the header declares 8 rows"), (9, "mo")],
)
def test_data_of_another_length_than_declared_is_damage(tmp_path, rows, message):
    folder = write(tmp_path, make_episodes(5))
    file = folder / "$store$_reward_ckpt.0.gz"
    data = gzip.decompress(file.read_bytes())
    header = data[: -8 * 4]
    file.write_bytes(gzip.compress(header + bytes(4 * rows)))
    (damaged,) = read(tmp_path)
    assert message in str(damaged.error)


def test_flags_other_than_0_and_1_are_damage(tmp_path):
    folder = write(tmp_path, make_episodes(5))
    change(folder, "$store$_terminal", np.array([0, 0, 0, 0, 2, 0, 0, 1], np.uint8))
    (damaged,) = read(tmp_path)
    assert "terminal_ckpt.0.gz, row 4: the flag is 2, expected 0 or 1" in str(damaged.error)


@pytest.mark.parametrize("name", ["stack_size", "max_episode_steps"])
def test_sizes_below_one_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match=f"{name}: got 0, expected a positive number"):
        AtariDqnReplaySource(tmp_path, **{name: 0})


def test_an_array_header_nested_too_deep_is_refused(tmp_path):
    folder = write(tmp_path, make_episodes(5))
    header = b"-" * 9000
    content = np.lib.format.magic(1, 0) + len(header).to_bytes(2, "little") + header
    (folder / "$store$_action_ckpt.0.gz").write_bytes(gzip.compress(content))
    with pytest.raises(SourceError, match=r"action_ckpt.0.gz: "):
        AtariDqnReplaySource(tmp_path)
