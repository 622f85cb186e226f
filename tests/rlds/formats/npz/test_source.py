"""Folders of `.npz` files, compared with plain loops over the files."""

import io
import os
import zipfile

import numpy as np
import pytest
import raw_npz
import stores_of_tests
import tree

import rlds
import rlds.sources
from rlds.sources import SourceError, reading
from rlds_ecosystem.files import stores
from rlds_ecosystem.model import nests

NpzSource = rlds.sources.formats()["npz"].load()


def check_episode(episode, file):
    """Compares an episode with its file, row by row."""
    with np.load(file) as arrays:
        raw = {name: arrays[name] for name in arrays.files}
    length = len(raw["action"])
    steps = episode.steps
    assert episode.key == file.name
    assert episode.num_steps == length + 1
    assert episode.final_observation_known
    terminal = bool(np.any(raw["terminal"]))
    for row in range(length + 1):
        last = row == length
        for name in ("camera", "joints"):
            np.testing.assert_array_equal(
                steps["observation"][name][row], raw[f"observation/{name}"][row]
            )
        for name in ("action", "reward", "discount"):
            expected = np.zeros_like(raw[name][0]) if last else raw[name][row]
            np.testing.assert_array_equal(steps[name][row], expected)
            assert steps[name].dtype == raw[name].dtype
        np.testing.assert_array_equal(steps["info"]["qpos"][row], raw["info/qpos"][row])
        contact = [0, 0] if last else raw["info/contact"][row]
        np.testing.assert_array_equal(steps["info"]["contact"][row], contact)
        assert steps["note"][row] == ("" if last else raw["note"][row])
        assert steps["is_first"][row] == (row == 0)
        assert steps["is_last"][row] == last
        assert steps["is_terminal"][row] == (last and terminal)
    assert episode.truncated == (not terminal)
    assert episode.complete == (terminal or bool(np.any(raw["truncated"])))
    assert episode.metadata["seed"] == raw["seed"]
    assert episode.metadata["task"] == raw["task"]
    np.testing.assert_array_equal(episode.metadata["goal"], raw["goal"])


def check_folder(path, local_folder):
    episodes = rlds.sources.open(path)
    assert episodes.format == "npz"
    # 2 comes before 10.
    assert [episode.key for episode in episodes] == list(raw_npz.sample())
    for episode in episodes:
        check_episode(episode, local_folder / episode.key)


def test_episodes_have_the_rows_of_their_files(tmp_path):
    raw_npz.write_folder(tmp_path, raw_npz.sample())
    check_folder(tmp_path, tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_folder_in_an_object_store_is_read(tmp_path):
    (tmp_path / "server").mkdir()
    raw_npz.write_folder(tmp_path / "here", raw_npz.sample())
    with stores_of_tests.running("gcsfs", tmp_path / "server") as store:
        path = f"{store.url}/episodes"
        for file in (tmp_path / "here").iterdir():
            stores.copy_file(file, f"{path}/{file.name}")
        check_folder(path, tmp_path / "here")


def read_single(tmp_path, **arrays):
    """Reads the only episode of a folder; None removes an array."""
    arrays = {**raw_npz.episode(4), **arrays}
    stored_arrays = {name: np.asarray(array) for name, array in arrays.items() if array is not None}
    path = raw_npz.write_folder(tmp_path / "one", {"a.npz": stored_arrays})
    return NpzSource(path / "a.npz", time_limit=0).read("train", 0)


ENDS = {  # Arrays of a file, and the resulting terminal, truncated, complete.
    "a scalar": ({"terminal": True}, (True, False, True)),
    "a scalar in an array": ({"terminal": [1.0]}, (True, False, True)),
    "neither": ({"terminal": False, "truncated": False}, (False, True, False)),
    "no flags": ({"terminal": None, "truncated": None}, (False, True, True)),
    "of observations": ({"terminal": np.arange(5) == 4}, (True, False, True)),
    "cut": ({"terminal": None, "truncated": None, "timeouts": True}, (False, True, True)),
    "done": ({"terminal": None, "truncated": None, "dones": True}, (True, False, True)),
    "done and truncated": ({"terminal": None, "truncated": True, "done": 1}, (False, True, True)),
    "both": ({"terminated": True, "terminal": None, "truncated": True}, (True, False, True)),
}


@pytest.mark.parametrize("case", ENDS)
def test_flags_decide_how_an_episode_ends(tmp_path, case):
    flags, (terminal, truncated, complete) = ENDS[case]
    episode = read_single(tmp_path, discount=None, **flags)
    assert episode.steps["is_terminal"].tolist() == [False] * 4 + [terminal]
    assert episode.steps["discount"].tolist() == [1, 1, 1, 0 if terminal else 1, 0]
    assert (episode.truncated, episode.complete) == (truncated, complete)


def test_a_done_flag_warns_of_time_limits(tmp_path):
    raw = {**raw_npz.episode(4), "dones": np.arange(4) == 3}
    arrays = {name: raw[name] for name in raw if name not in ("terminal", "truncated")}
    path = raw_npz.write_folder(tmp_path / "raw", {"a.npz": arrays})
    with pytest.warns(UserWarning, match=r"a\.npz: a done may be .* time limit.*time_limit="):
        default = rlds.sources.open(path)
    for episodes, terminal in (
        (default, True),
        (rlds.sources.open(path, time_limit=4), False),
        (rlds.sources.open(path, time_limit=5), True),
    ):
        (episode,) = episodes
        assert (episode.steps["is_terminal"][-1], episode.truncated) == (terminal, not terminal)
    with pytest.raises(ValueError, match="time_limit: got -1, expected 0 or more"):
        rlds.sources.open(path, time_limit=-1)


def test_names_of_d4rl_and_an_unknown_final_observation_are_read(tmp_path):
    rng = np.random.default_rng(0)
    observations, actions = rng.random((6, 3)), rng.integers(0, 4, 6)
    for rows in (6, 5):  # The observation after the last action is missing or present.
        path = raw_npz.write_folder(
            tmp_path / str(rows),
            {"0.npz": {"observations": observations, "actions": actions[:rows]}},
        )
        source = NpzSource(path)
        assert sorted(source.fields.steps) == ["action", "discount", "observation"]
        episode = source.read("train", 0)
        np.testing.assert_array_equal(episode.steps["observation"], observations)
        np.testing.assert_array_equal(episode.steps["action"][:5], actions[:5])
        assert episode.final_observation_known == (rows == 5)
        assert episode.steps["action"][5] == (actions[5] if rows == 6 else 0)
        assert episode.origin == rlds.sources.Origin("0.npz", 0, rows)


def make_rsa_rows(length, seed=0):
    """Returns rows as DrQ-v2, ExORL and Dreamer store them, and their transitions."""
    rng = np.random.default_rng(seed)
    rows = {
        "observation": rng.random((length + 1, 3), np.float32),
        "action": rng.random((length + 1, 2), np.float32),
        "reward": rng.random((length + 1, 1), np.float32),
        "discount": np.ones((length + 1, 1), np.float32),
        "physics": rng.random((length + 1, 4)),
    }
    rows["action"][0], rows["reward"][0] = 0, 0
    names = ("action", "reward", "discount")
    transitions = [{name: rows[name][t + 1] for name in names} for t in range(length)]
    return rows, transitions


def test_actions_that_led_to_the_observation_are_aligned(tmp_path):
    rows, transitions = make_rsa_rows(5)
    path = raw_npz.write_folder(tmp_path / "raw", {"a_0_5.npz": rows})
    with pytest.warns(UserWarning, match=r"a_0_5\.npz: the first action is zero.*alignment='rsa'"):
        default = rlds.sources.open(path)
    for stored in (default, rlds.sources.open(path, alignment="sar")):
        np.testing.assert_array_equal(stored[0].steps["action"], rows["action"])
    (episode,) = rlds.sources.open(path, alignment="rsa")
    assert (episode.num_steps, episode.final_observation_known) == (6, True)
    for row, transition in enumerate(transitions):
        for name, value in transition.items():
            np.testing.assert_array_equal(episode.steps[name][row], value)
    for name in ("observation", "physics"):
        np.testing.assert_array_equal(episode.steps[name], rows[name])
    for name in transitions[0]:
        np.testing.assert_array_equal(episode.metadata["placeholders"][name], rows[name][0])
    assert episode.truncated
    rows["discount"][-1] = 0  # As in dm_env for a terminal state.
    raw_npz.write_folder(tmp_path / "raw", {"a_0_5.npz": rows})
    (episode,) = rlds.sources.open(path, alignment="rsa")
    assert (episode.steps["is_terminal"][-1], episode.truncated) == (True, False)
    rows["observation"] = rows["observation"][:-1]
    raw_npz.write_folder(tmp_path / "raw", {"a_0_5.npz": rows})
    with pytest.raises(SourceError, match=r"'observation': 5 rows, expected 6, as many as actions"):
        rlds.sources.open(path, alignment="rsa")


@pytest.mark.parametrize("terminal", [False, True])
def test_saved_steps_of_rlds_are_read_back(tmp_path, terminal):
    """`np.savez(file, **steps)` saves the steps without the flags of the episode."""
    (tmp_path / "logs").mkdir()
    files = {"1.npz": raw_npz.episode(4, terminal=terminal, truncated=not terminal)}
    (first,) = rlds.sources.open(raw_npz.write_folder(tmp_path / "raw", files))
    flat = dict(nests.named_leaves(first.steps))
    note = flat.pop("note").astype(str)
    np.savez(tmp_path / "logs" / "a.npz", **flat, note=note)
    (episode,) = rlds.sources.open(tmp_path / "logs")
    assert (episode.truncated, episode.complete) == (first.truncated, first.complete)
    for name, column in nests.named_leaves(episode.steps):
        np.testing.assert_array_equal(column, flat.get(name, note))
    np.savez(tmp_path / "logs" / "a.npz", **flat, final_observation_known=False)
    (episode,) = rlds.sources.open(tmp_path / "logs")
    assert not episode.final_observation_known
    np.savez(tmp_path / "logs" / "a.npz", **flat | {"is_first": np.isin(np.arange(5), [0, 2])})
    with pytest.raises(
        SourceError, match="'is_first': set in row 2 of 5, expected only in the first"
    ):
        rlds.sources.open(tmp_path / "logs")[0]


def test_another_array_can_be_the_observation(tmp_path):
    """Dreamer and V-D4RL have `image`, flags of RLDS, and actions that led to the observation."""
    rows, transitions = make_rsa_rows(4)
    dreamer = {"image": rows.pop("observation"), **rows, "is_first": np.arange(5) == 0}
    dreamer |= {"is_last": np.arange(5) == 4, "is_terminal": np.arange(5) == 4}
    path = raw_npz.write_folder(tmp_path / "raw", {"a.npz": dreamer})
    with pytest.raises(SourceError, match=r"no such array; .*pass observation=\.\.\. \(on"):
        rlds.sources.open(path)
    with pytest.raises(ValueError, match="observation: got 'imag', expected one of"):
        rlds.sources.open(path, alignment="rsa", observation=["image", "imag"])
    options = {"alignment": "rsa", "observation": "image"}
    (episode,) = rlds.sources.open(path, **options)
    np.testing.assert_array_equal(episode.steps["observation"], dreamer["image"])
    np.testing.assert_array_equal(episode.steps["action"][0], transitions[0]["action"])
    assert episode.steps["is_terminal"].tolist() == [False] * 4 + [True]
    options["observation"] = ["image", "physics"]
    (episode,) = rlds.sources.open(path, **options)
    np.testing.assert_array_equal(episode.steps["observation"]["physics"], dreamer["physics"])


def test_all_arrays_can_have_other_names(tmp_path):
    rows = np.arange(5, dtype=np.float32)
    arrays = {
        "obs_state": rows[:, None],
        "obs_img": np.zeros((5, 2, 2, 3), np.uint8),
        "act": rows[1:, None],
        "rew": rows[1:],
        "ended": rows[1:] == 4,
        "operator": "Ann",
    }
    path = raw_npz.write_folder(tmp_path / "raw", {"a.npz": arrays})
    with pytest.raises(SourceError, match=r"obs_img, act, .* -O action=NAME"):
        rlds.sources.open(path, format="npz")
    names = {"observation": ["obs_state", "obs_img"], "action": "act", "reward": "rew"}
    (episode,) = rlds.sources.open(path, format="npz", **names, terminal="ended")
    assert set(episode.steps["observation"]) == {"obs_state", "obs_img"}
    np.testing.assert_array_equal(episode.steps["action"][:4, 0], rows[1:])
    np.testing.assert_array_equal(episode.steps["reward"][:4], rows[1:])
    assert (episode.truncated, episode.metadata["operator"]) == (False, "Ann")
    # A `done` may be a time limit, whatever it is called.
    with pytest.warns(UserWarning, match="a done may be a terminal state or a time limit"):
        rlds.sources.open(path, format="npz", **names, done="ended")
    (episode,) = rlds.sources.open(path, format="npz", **names, truncated="ended")
    assert episode.truncated
    for option in ("reward", "terminal"):
        with pytest.raises(ValueError, match=f"{option}: got 'other', expected one of"):
            rlds.sources.open(path, format="npz", **names | {option: "other"})


def test_the_last_next_observation_is_the_final_observation(tmp_path):
    values = np.arange(5, dtype=np.float32)[:, None]
    arrays = {"observations": values, "next_observations": values + 1, "actions": values}
    np.savez(tmp_path / "a.npz", **arrays, rewards=values[:, 0])
    episodes = rlds.sources.open(tmp_path)
    assert episodes[0].final_observation_known
    for steps in (episodes[0].steps, episodes.columns(0, ["observation"])):
        assert steps["observation"].ravel().tolist() == [0, 1, 2, 3, 4, 5]
    assert episodes[0].steps["next_observation"].ravel().tolist() == [1, 2, 3, 4, 5, 0]
    assert episodes.columns(0, ["reward"])["reward"].tolist() == [0, 1, 2, 3, 4, 0]


def test_only_requested_fields_are_read(tmp_path):
    """Damaged bytes of the camera do not affect other fields."""
    path = raw_npz.write_folder(tmp_path / "raw", {"0.npz": raw_npz.episode(400)})
    file = path / "0.npz"
    content = bytearray(file.read_bytes())
    with zipfile.ZipFile(file) as archive:
        begin = archive.getinfo("observation/camera.npy").header_offset
    content[begin + 20_000] ^= 1
    file.write_bytes(content)
    episodes = rlds.sources.open(path)
    columns = episodes.columns(0, ["reward", "observation/joints", "is_last"], stop=-1)
    tree.assert_same_structure(
        columns, {"reward": 0, "observation": {"joints": 0}, "is_last": 0}, check_types=False
    )
    np.testing.assert_array_equal(columns["reward"], raw_npz.episode(400)["reward"])
    assert episodes.columns(0, ["discount"])["discount"].shape == (401,)
    with pytest.raises(SourceError, match=r"0\.npz.*'observation/camera': .*BadZipFile.*CRC"):
        episodes.columns(0, ["observation/camera"])


def test_an_array_of_the_episode_can_be_declared_with_per_episode(tmp_path):
    files = {f"{length}.npz": raw_npz.episode(length, goal=np.arange(3)) for length in (3, 5)}
    path = raw_npz.write_folder(tmp_path / "raw", files)
    source = NpzSource(path)
    with pytest.raises(SourceError, match=r"5\.npz.*'goal': 3 rows, expected 5 or 6 rows"):
        source.read("train", 1)
    episodes = rlds.sources.open(path, per_episode=["goal"])
    assert [episode.metadata["goal"].tolist() for episode in episodes] == [[0, 1, 2]] * 2
    with pytest.raises(ValueError, match=r"per_episode: got 'gaol', expected one of .*'goal'"):
        NpzSource(path, per_episode=["gaol"])


MALFORMED = {  # Changes of the second file, and the message.
    "missing": ({"note": None}, "'note': no such array, but 0.npz has it"),
    "more": ({"extra": 1}, "'extra': 0.npz has no such array"),
    "dtype": (
        {"action": np.zeros((4, 2), "f4")},
        r"'action': float32 of shape \(2,\), expected float64 of shape \(2,\), as in 0.npz",
    ),
    "shape": (
        {"observation/joints": np.zeros((5, 4), "f4")},
        r"'observation/joints': float32 of shape \(4,\), expected float32 of shape \(3,\)",
    ),
    "rows": ({"reward": np.zeros(5, "f4")}, "'reward': 5 rows, expected 4 rows"),
    "rows of steps": ({"note": ["a"] * 6}, "'note': 6 rows, expected 4 or 5 rows"),
    "rows of observations": (
        {"observation/camera": np.zeros((4, 4, 5, 3), "u1")},
        "'observation/joints': 5 rows, expected 4, as observation/camera has",
    ),
    "too many observations": (
        {
            "observation/camera": np.zeros((9, 4, 5, 3), "u1"),
            "observation/joints": np.zeros((9, 3), "f4"),
        },
        "'observation': 9 rows, expected 4, as many as actions, or one more",
    ),
    "a scalar": ({"reward": np.float32(1)}, "'reward': a scalar, expected 4 rows"),
    "scalars": ({"action": 1.0}, "'action': a scalar, expected rows"),
    "no actions": ({"action": None}, "'action': no such array; the file has .*reward"),
    "two names": ({"rewards": np.zeros(4, "f4")}, "'rewards': another array becomes 'reward', too"),
    "two flags": ({"terminated": True}, "'terminated': another array becomes"),
    "a file of episodes": (
        {"terminal": np.arange(4) == 1},
        "'terminal': set in row 1 of 4, expected only in the last one",
    ),
    "rows of flags": ({"terminal": np.zeros(3, bool)}, "'terminal': 3 values, expected 1 or 4"),
    "a text as flag": ({"terminal": "yes"}, "'terminal': <U3, expected bools"),
    "pickles": ({"task": np.array({}, object)}, "'task': pickled objects, which can run any code"),
    "dates": ({"task": np.array("2020", "M8[Y]")}, r"'task': datetime64\[Y\], expected numbers"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_arrays_are_errors_that_name_their_field(tmp_path, case):
    changes, message = MALFORMED[case]
    second = {**raw_npz.episode(4), **changes}
    second = {name: np.asarray(array) for name, array in second.items() if array is not None}
    files = {"0.npz": raw_npz.episode(3), "1.npz": second, "2.npz": raw_npz.episode(2)}
    source = NpzSource(raw_npz.write_folder(tmp_path / "raw", files))
    with pytest.raises(SourceError, match=rf"1\.npz, episode 1\.npz, field {message}"):
        reading.read(source, "train", 1)
    assert source.read("train", 2).num_steps == 3


@pytest.mark.parametrize("name", ["source", "is_first/x"])
def test_reserved_names_are_refused(tmp_path, name):
    values = {"source": 1, "is_first/x": np.zeros(5)}
    with pytest.raises(SourceError, match=rf"'{name}': this name is reserved"):
        read_single(tmp_path, **{name: values[name]})


def _npy_header(dtype, length):
    header = io.BytesIO()
    fields = {"descr": dtype, "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(header, fields)
    return header.getvalue()


@pytest.mark.slow
def test_time_for_a_name_does_not_grow_with_the_number_of_names(tmp_path, monkeypatch):
    """A path is not compared with all other paths."""
    names = [f"x{index}" for index in range(3000)]
    path = tmp_path / "a.npz"
    np.savez(path, **{"observation": np.zeros(4), "action": np.zeros(3)}, **dict.fromkeys(names, 1))
    calls = []
    is_below = nests.is_below
    monkeypatch.setattr(nests, "is_below", lambda *args: calls.append(args) or is_below(*args))
    monkeypatch.setattr(nests.Paths, "__iter__", lambda p: calls.append(p) or dict.__iter__(p))
    episodes = rlds.sources.open(path)
    assert len(episodes[0].metadata) == len(names)
    assert len(calls) < 10 * len(names)


def test_zip_files_that_are_not_episodes_are_refused(tmp_path):
    header = b"\x93NUMPY\1\0" + (9000).to_bytes(2, "little") + b"-" * 9000
    members = {
        "x.txt": (b"text", "'x.txt': not an array, but another file"),
        "deep.npy": (header, "'deep': cannot be read: .*"),
        "//.npy": (None, "an array with the name '//'"),
        "void.npy": (_npy_header("|S0", 1 << 40), r"'void': \|S0, expected values that take bytes"),
        "a/b.npy": (_npy_header("|b1", 0), "'a/b': another array becomes 'a/b', too"),
        "new.npy": (b"\x93NUMPY\3\0\0\0\0\0", r"'new': cannot be read: .npy version \(3, 0\)"),
    }
    for name, (content, message) in members.items():
        file = tmp_path / "a.npz"
        np.savez(file, action=np.zeros(3), observation=np.zeros(4), a=np.zeros(0))
        with zipfile.ZipFile(file, "a") as archive:
            archive.writestr(name, archive.read("action.npy") if content is None else content)
        with pytest.raises(SourceError, match=message):
            _ = NpzSource(file).fields.episode
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("action.npy", b"")
    with pytest.raises(SourceError, match=r"'action\.npy': compressed by method 14 of zip"):
        NpzSource(file)


def test_only_folders_with_episode_arrays_are_recognized(tmp_path):
    assert not rlds.sources.formats()["npz"].recognizes(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"has no \.npz files"):
        NpzSource(tmp_path)
    (tmp_path / ".hidden.npz").write_bytes(b"")
    (tmp_path / "folder.npz").mkdir()
    assert not rlds.sources.formats()["npz"].recognizes(tmp_path)
    np.savez(tmp_path / "a.npz", mean=np.zeros(2), std=np.zeros(2))
    assert not rlds.sources.formats()["npz"].recognizes(tmp_path)
    with pytest.raises(SourceError, match="unknown format"):
        rlds.sources.open(tmp_path)
    with pytest.raises(
        SourceError, match=r"a\.npz, field 'action': no such array; the file has mean"
    ):
        rlds.sources.open(tmp_path, format="npz")
    np.savez(tmp_path / "a.npz", **{"observations": np.zeros(2), "actions/arm": np.zeros(2)})
    assert rlds.sources.formats()["npz"].recognizes(tmp_path)
    assert rlds.sources.formats()["npz"].recognizes(tmp_path / "a.npz")
    assert len(rlds.sources.open(tmp_path / "a.npz")) == 1
    os.rename(tmp_path / "a.npz", os.fsencode(tmp_path) + b"/\xff.npz")
    with pytest.raises(SourceError, match="UnicodeEncodeError"):
        NpzSource(tmp_path)
