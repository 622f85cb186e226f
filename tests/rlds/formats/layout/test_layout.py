"""Files of each container, read by a layout, and the messages of errors."""

import pickle
import re

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import raw_d4rl
import raw_ogbench
from raw_d4rl_pybullet import write_pybullet

import rlds
import rlds.feeds
import rlds.sources
import rlds_tools
from rlds.sources import reading
from rlds.sources.source import SourceError
from rlds.sources.testing import differences
from rlds_tools.command_line.commands import run
from tfds_files.png import encode_png

LENGTHS = (4, 3, 5)
RNG = np.random.default_rng(0)
ROWS = sum(LENGTHS)
ENDS = np.cumsum(LENGTHS)
OBS, ACT = RNG.random((ROWS, 3)), RNG.random((ROWS, 2), np.float32)
REW = np.arange(ROWS) / 4
DONE = np.isin(np.arange(ROWS), ENDS - 1)
LIMIT = np.arange(ROWS) == ENDS[1] - 1
FIELDS = """
steps:
  observation: {from: obs, unit: m}
  action: act
  reward: rew
"""
RUNS = (
    f"layout: 1\norder: sar\nfinal_observation: unknown\nterminal: done\ntruncated: limit\n{FIELDS}"
)
FILES = f"layout: 1\nepisodes: {{one_per: file}}\norder: sar\nfinal_observation: unknown\n{FIELDS}"
ARRAYS = {"obs": OBS, "act": ACT, "rew": REW, "done": DONE, "limit": LIMIT}


def run_slices():
    return [slice(end - length, end) for length, end in zip(LENGTHS, ENDS)]


def write_npz(path):
    np.savez(path / "a.npz", **ARRAYS)
    return path / "a.npz", "ends: done"


def write_hdf5(path):
    with h5py.File(path / "a.h5", "w") as file:
        for name, values in ARRAYS.items():
            file[f"data/{name}"] = values
        file["meta/ends"] = ENDS
    return path / "a.h5", "end_rows: meta/ends"


def write_parquet(path):
    columns = {name: values.tolist() for name, values in ARRAYS.items()}
    columns["act"] = pa.array(ACT.tolist(), pa.list_(pa.float32(), 2))
    columns["trial"] = np.repeat([7, 3, 9], LENGTHS)
    pq.write_table(pa.table(columns), path / "a.parquet")
    return path / "a.parquet", "number: trial"


@pytest.mark.parametrize("write", [write_npz, write_hdf5, write_parquet])
def test_runs_of_rows_are_divided_into_episodes(tmp_path, write):
    path, episodes = write(tmp_path)
    layout = f"{RUNS}\nepisodes: {{{episodes}}}\n"
    if write is write_hdf5:
        layout = re.sub(r"\b(obs|act|rew|done|limit)$", r"data/\1", layout, flags=re.M)
        layout = layout.replace("from: obs", "from: data/obs")
    opened = rlds.sources.open(path, layout=layout)
    assert (opened.format, len(opened)) == ("layout", 3)
    assert opened.spec["steps"]["observation"].unit == "m"
    copy = pickle.loads(pickle.dumps(opened))
    for index, rows in enumerate(run_slices()):
        episode = copy[index]
        np.testing.assert_array_equal(episode.steps["observation"], OBS[rows])
        np.testing.assert_array_equal(episode.steps["action"], ACT[rows])
        np.testing.assert_array_equal(episode.steps["reward"], REW[rows])
        assert episode.truncated == (index == 1)
        assert episode.complete
        assert not episode.final_observation_known
        assert reading.summary(opened.source, "train", index) == episode.summary
    assert rlds.feeds.open(path, layout=layout).num_steps == ROWS


def write_csv_folder(path):
    for index, rows in enumerate(run_slices()):
        lines = ["x,y,vx,force,task", *(f"{x},{y},{v},1,pick" for x, y, v in csv_rows(rows))]
        (path / f"run_{index}.csv").write_text("\r\n".join(lines), "utf-8-sig")
    return path


def csv_rows(rows):
    return np.stack([OBS[rows, 0], OBS[rows, 1], REW[rows]], axis=1).tolist()


@pytest.mark.parametrize("order", ["sar", "rsa", "dm_env"])
def test_a_folder_of_csv_files_is_read(tmp_path, order):
    layout = f"""
layout: 1
episodes: {{one_per: file}}
order: {order}
{"final_observation: last_row" if order == "sar" else ""}
terminal: true
time_limit: 3
steps:
  observation/position: [x, y]
  action: {{from: [vx, force], dtype: float32, names: [speed, force]}}
  reward: vx
episode: {{task: task}}
"""
    episodes = rlds.sources.open(write_csv_folder(tmp_path), layout=layout)
    fields = episodes.spec["steps"]
    assert fields["observation"]["position"].names == ("x", "y")
    assert (fields["action"].dtype, fields["action"].names) == (np.float32, ("speed", "force"))
    for episode, rows in zip(episodes, run_slices(), strict=True):
        steps, reward = episode.steps, REW[rows]
        np.testing.assert_array_equal(steps["observation"]["position"], OBS[rows, :2])
        assert episode.final_observation_known
        assert episode.truncated == (len(reward) == 4)
        assert episode.metadata["task"] == "pick"
        expected = reward[1:] if order == "rsa" else reward[:-1]
        np.testing.assert_array_equal(steps["action"][:-1, 0], expected.astype(np.float32))
        expected = reward[:-1] if order == "sar" else reward[1:]
        np.testing.assert_array_equal(steps["reward"][:-1], expected)
        leftover = {name: float(np.ravel(v)[0]) for name, v in episode.metadata["leftover"].items()}
        first, last = reward[0].astype(np.float32), reward[-1].astype(np.float32)
        assert leftover["action"] == (first if order == "rsa" else last)
        assert leftover["reward"] == (reward[-1] if order == "sar" else reward[0])


def test_groups_with_one_more_observation_than_actions_are_read(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for index, rows in enumerate(run_slices()):
            group = file.create_group(f"runs/run_{index}")
            group["states"], group["actions"] = OBS[rows], ACT[rows][:-1]
            group["success"] = index == 2
            group["text"] = f"task {index}"
    layout = tmp_path / "mine.yaml"
    layout.write_text("""
layout: 1
groups: runs/run_*
episodes: {one_per: group}
order: sar
final_observation: extra_row
terminal: success
steps: {observation/state: states, action: actions}
episode: {instruction: text}
""")
    episodes = rlds.sources.open(tmp_path / "a.h5", layout=str(layout))
    assert [episode.num_steps for episode in episodes] == [4, 3, 5]
    assert [episode.truncated for episode in episodes] == [True, True, False]
    assert [each.metadata["instruction"] for each in episodes] == ["task 0", "task 1", "task 2"]
    np.testing.assert_array_equal(episodes[1].steps["action"][:-1], ACT[run_slices()[1]][:-1])
    exported = rlds.sources.export(episodes, "webdataset", tmp_path / "made").path
    for original, copy in zip(episodes, rlds.sources.open(exported), strict=True):
        assert not [*differences(original, copy)]


def test_folders_of_images_are_read(tmp_path):
    for index, rows in enumerate(run_slices()):
        (tmp_path / f"run_{index}" / "rgb").mkdir(parents=True)
        for step in range(len(OBS[rows]) + 8):
            png = encode_png(np.full((4, 6, 3), step, np.uint8))
            (tmp_path / f"run_{index}" / "rgb" / f"{step}.png").write_bytes(png)
        lines = ["speed", *map(str, range(len(OBS[rows]) + 8))]
        (tmp_path / f"run_{index}" / "log.csv").write_text("\n".join(lines))
    (tmp_path / "rlds_layout.yaml").write_text("""
layout: 1
episodes: {one_per: folder}
order: sar
final_observation: last_row
terminal: false
steps: {observation/camera: "rgb/*.png", action: log.csv/speed}
""")
    episodes = rlds.sources.open(tmp_path)  # Recognized by the layout in it.
    for episode, rows in zip(episodes, run_slices(), strict=True):
        images = episodes.columns(0)["observation"]["camera"]
        assert images[:, 0, 0, 0].tolist() == list(range(LENGTHS[0] + 8))  # 2.png before 10.png.
        assert episode.steps["action"][:-1].tolist() == list(range(len(OBS[rows]) + 7))


def test_a_layout_takes_final_observations_from_next_observations(tmp_path):
    next_obs = np.concatenate([OBS[1:], OBS[:1]])
    next_obs[ENDS - 1] = -1
    layout = f"{RUNS}  info: rew\nepisodes: {{lengths: n}}\n"
    layout = layout.replace("unknown", "{observation: next}")
    np.savez(tmp_path / "a.npz", **ARRAYS, next=next_obs, n=np.array(LENGTHS))
    episodes = rlds.sources.open(tmp_path / "a.npz", layout=layout)
    assert [len(episode.steps["observation"]) for episode in episodes] == [5, 4, 6]
    assert episodes[2].steps["observation"][-1].tolist() == [-1] * 3
    assert episodes[2].steps["info"].tolist() == [*REW[7:], 0]
    np.savez(tmp_path / "a.npz", **ARRAYS, next=next_obs, n=np.array([4, 8]))
    episodes = rlds.sources.open(
        tmp_path / "a.npz",
        layout=layout.replace("terminal: done", "terminal: false").replace(
            "truncated: limit", "leave_out: [done, limit]"
        ),
    )
    with pytest.raises(SourceError, match=r"row 6, field 'next': not the observation of the next"):
        episodes[1]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("order: sar", "order: ???", r"mine.yaml: line 2: order: replace \?\?\?: sar: a row has"),
        ("order: sar", "", r"mine.yaml: order is missing \(sar: "),
        ("unit: m", "\n    unit: ???", r"not valid YAML|line \d+: .*unit: replace \?\?\?"),
        ("order: sar", "order: asr", "line 2: order: got 'asr', expected sar or rsa or dm_env"),
        (
            "terminal: done",
            "terminl: done",
            "line 4: terminl: unknown key; did you mean 'terminal'",
        ),
        (
            "action: act",
            "action: acts",
            r"line \d+: steps/action: no array 'acts' in .*a\.npz; did you mean 'act'",
        ),
        ("terminal: done", "terminal: dne", r"line 4: terminal: no array 'dne' in .*a\.npz"),
        ("terminal: done", "terminal: &a done", "line 4: YAML: an anchor"),
        ("terminal: done", "terminal: !!python/name:os.system done", "line 4: YAML: .* a tag"),
        ("terminal: done", "terminal: [", "mine.yaml: line .*: not valid YAML"),
        ("terminal: done", "terminal: 1", "line 4: terminal: got 1, expected a name; put it in"),
        ("layout: 1", "layout: 2", "line 1: layout: got 2, expected 1"),
        ("action: act", "is_last: act", "steps/is_last: the name is reserved"),
        ("ends: done", "ends: act", r"field 'act': .*expected a flag a row"),
        ("terminal: done", "terminal: any", r"field 'any': set in step 1 of 4; do episodes end"),
        ("ends: done", "one_per: run", "one_per: got 'run', expected file or folder or group"),
        ("reward: rew", "reward: {from: rew, dtype: int64}", r"0.25 does not fit into int64"),
    ],
)
def test_errors_name_the_line_and_the_expected_value(tmp_path, old, new, message):
    np.savez(tmp_path / "a.npz", **ARRAYS, any=np.arange(ROWS) == 1)
    text = f"{RUNS}episodes: {{ends: done}}\nleave_out: [any]\n"
    (tmp_path / "mine.yaml").write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match=message):
        rlds.sources.open(tmp_path / "a.npz", layout=str(tmp_path / "mine.yaml"))[0]


def test_arrays_that_are_not_in_the_layout_are_named(tmp_path):
    np.savez(tmp_path / "a.npz", **ARRAYS, torque=REW)
    layout = f"{RUNS}\nepisodes: {{ends: done}}\n"
    with pytest.warns(UserWarning, match="not in the layout, and not read: 'torque'"):
        rlds.sources.open(tmp_path / "a.npz", layout=layout)


def test_errors_name_the_damaged_file_and_row(tmp_path):
    layout = f"{FILES}terminal: false\n"
    for index, rows in enumerate(run_slices()):
        np.savez(tmp_path / f"{index}.npz", obs=OBS[rows], act=ACT[rows], rew=REW[rows])
    np.savez(tmp_path / "1.npz", obs=OBS[:3], act=ACT[:2], rew=REW[:3])
    np.savez(tmp_path / "2.npz", obs=OBS[:3, :2], act=ACT[:3], rew=REW[:3])
    episodes = rlds.sources.open(tmp_path, layout=layout)
    assert len(episodes[0]) == 4
    with pytest.raises(SourceError, match=r"1\.npz.*episode 1\.npz.*rows: .*'act': 2"):
        episodes[1]
    with pytest.raises(SourceError, match=r"2\.npz.*field 'obs': .*but the first episode has"):
        episodes[2]
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "a.csv").write_text("obs,act,rew\n1,2,3\n1,,3\n")
    with pytest.raises(SourceError, match=r"a\.csv.*row 1, field 'act': no value"):
        rlds.sources.open(tmp_path / "csv", layout=layout.replace(", unit: m", ""))


@pytest.mark.parametrize(
    ("episodes", "changes", "message"),
    [
        ("ends: done", {"limit": LIMIT[:-1]}, "field 'limit': 11 rows, but other arrays have 12"),
        ("ends: done", {"done": np.append(DONE, 1)}, "field 'done': 13 rows, but other arrays"),
        ("end_rows: n", {"n": np.uint64([8, 4, 12])}, "field 'n': expected increasing rows"),
        ("lengths: n", {"n": np.array([4, 9])}, "field 'n': expected increasing rows that end"),
        ("number: n", {"n": np.repeat([1, 2, 1], 4)}, "the rows of an episode are not consecutive"),
        (
            "ends: done",
            {"act": np.full(ROWS, 2**53 + 1)},
            "9007199254740993 does not fit into float64",
        ),
    ],
)
def test_arrays_that_contradict_the_layout_are_refused(tmp_path, episodes, changes, message):
    np.savez(tmp_path / "a.npz", **{**ARRAYS, **changes})
    layout = (
        f"{RUNS}episodes: {{{episodes}}}\n{'' if 'done' in episodes else 'leave_out: [done]'}\n"
    )
    with pytest.raises(SourceError, match=message):
        rlds.sources.open(tmp_path / "a.npz", layout=layout.replace("act\n", "[act, rew]\n"))[0]


def test_a_proposal_is_opened_once_it_is_filled_in(tmp_path, capsys):
    (folder := tmp_path / "runs").mkdir()
    write_csv_folder(folder)
    assert run(["inspect", str(folder)]) == 1
    assert "unknown format" in capsys.readouterr().out
    proposal = rlds_tools.propose_layout(folder).layout
    assert 'files: "*.csv"  # 3 files' in proposal
    assert "episodes: {one_per: file}" in proposal
    assert "  task: task  # text, 4 rows" in proposal
    (tmp_path / "mine.yaml").write_text(proposal)
    arguments = ["inspect", str(folder), "--layout", str(tmp_path / "mine.yaml")]
    assert run(arguments) == 1
    assert "order: replace ???" in capsys.readouterr().err
    for key, value in {"order": "sar", "final_observation": "unknown", "terminal": "false"}.items():
        proposal = proposal.replace(f"\n{key}: ???", f"\n{key}: {value}")
    (tmp_path / "mine.yaml").write_text(proposal.replace("???", "unknown"))
    assert run(arguments) == 0
    assert "3" in capsys.readouterr().out
    assert run(["stats", *arguments[1:]]) == 0


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (
            write_npz,
            ["episodes: ???", "# done: bool, set in 3 of 12 rows", "  observation/obs:  # float64"],
        ),
        (
            write_hdf5,
            ["episodes: {end_rows: meta/ends}", "    from: data/act", "leave_out: [data/done"],
        ),
        (write_parquet, ["  trial: trial  # int64, 12 rows"]),
    ],
)
def test_proposals_describe_the_arrays_and_mark_open_questions(tmp_path, write, expected):
    path, _ = write(tmp_path)
    proposal = rlds_tools.propose_layout(path)
    for line in expected:
        assert line in proposal.layout
    with pytest.raises(ValueError, match=r"replace \?\?\?"):
        rlds.sources.open(path, layout=proposal.layout)


def test_missing_and_malformed_layouts_are_refused(tmp_path):
    path, _ = write_npz(tmp_path)
    with pytest.raises(ValueError, match="layout: missing; pass a layout in YAML"):
        rlds.sources.open(path, format="layout")
    with pytest.raises(FileNotFoundError, match=r"mine\.yaml' does not exist"):
        rlds.sources.open(path, layout=str(tmp_path / "mine.yaml"))
    (tmp_path / "mine.yaml").write_bytes(b"#" * (1 << 19))
    with pytest.raises(SourceError, match="more than 262,144 bytes, expected a layout"):
        rlds.sources.open(path, layout=str(tmp_path / "mine.yaml"))
    for text in ("[" * 100_000, "a: " * 3, "\0\n", "- 1\n- 2\n", "{}\n", "layout: 1\nlayout: 1\n"):
        (tmp_path / "mine.yaml").write_text(text)
        with pytest.raises(SourceError, match=r"mine\.yaml: "):
            rlds.sources.open(path, layout=str(tmp_path / "mine.yaml"))


LAYOUTS = {
    "ogbench": """
episodes: {ends: terminals}
order: sar
final_observation: last_row
terminal: false
steps: {observation: observations, action: actions, qpos: qpos, button_states: button_states}
""",
    "d4rl_pybullet": """
episodes: {ends: terminals}
order: dm_env
terminal: terminals
time_limit: 10
steps: {observation: observations, action: actions, reward: rewards}
""",
    "d4rl": """
episodes: {ends: [terminals, timeouts]}
order: sar
final_observation: {observation: next_observations}
terminal: terminals
truncated: timeouts
steps: {observation: observations, action: actions, reward: rewards}
""",
}


@pytest.mark.parametrize("format", LAYOUTS)
def test_a_layout_reads_the_same_episodes_as_the_reader_of_the_format(tmp_path, format):
    path = {
        "ogbench": lambda: raw_ogbench.write(tmp_path).with_name("cube-single-play-v0-val.npz"),
        "d4rl_pybullet": lambda: write_pybullet(tmp_path / "a.hdf5", [4, 10, 3, 6], cut=True),
        "d4rl": lambda: raw_d4rl.write(
            tmp_path / "hopper.hdf5",
            {
                **raw_d4rl.transitions((4, 5, 3), 3, 2),
                **{"terminals": raw_d4rl.flags(12, 3), "timeouts": raw_d4rl.flags(12, 8)},
            },
        ),
    }[format]()
    expected = rlds.sources.open(
        path, format=format, **({"time_limit": 10} if format == "d4rl_pybullet" else {})
    )
    episodes = rlds.sources.open(path, layout=f"layout: 1\n{LAYOUTS[format]}")
    for ref, episode in zip(expected, episodes, strict=True):
        attributes = ("truncated", "complete", "final_observation_known", "summary")
        assert all(getattr(ref, name) == getattr(episode, name) for name in attributes)
        for name in episode.steps:
            column = np.asarray(episode.steps[name])
            np.testing.assert_array_equal(column.reshape(ref.steps[name].shape), ref.steps[name])
        left = episode.metadata.get("leftover", {})
        for name, value in (("last_action", "action"), ("first_reward", "reward")):
            if name in ref.metadata:
                np.testing.assert_array_equal(np.ravel(left[value]), np.ravel(ref.metadata[name]))
