import contextlib
import functools
import json
import os
import pickle
import zipfile

import conversions
import dm_env
import numpy as np
import pytest
import raw_rlds_creator as raw
import tensorflow_datasets as tfds
from dm_env import specs
from hypothesis import given, settings
from hypothesis import strategies as st

import envlogger
import rlds.sources
from rlds.formats.google_creator.pickles import NAMES
from rlds.raw_files.image_files import black_jpeg
from rlds.raw_files.restricted_pickle import RestrictedPickleError, loads
from rlds.sources import DamagedEpisode, SourceError, reading
from rlds.tfds import load
from tfds_builders import RldsCreator, convert

RldsCreatorSource = rlds.sources.formats()["rlds_creator"].load()

tfds.disable_progress_bar()


def read(path, index=0, **options):
    return reading.read(RldsCreatorSource(path, **options), "train", index)


@pytest.mark.slow
def test_a_download_becomes_a_dataset(tmp_path):
    path = raw.write_zip(tmp_path / "download.zip", raw.sample())
    builder = conversions.check_conversion(
        functools.partial(RldsCreatorSource, path),
        tmp_path / "data",
        builder=RldsCreator,
        path=path,
    )
    assert RldsCreator.name == "rlds_creator"
    episodes = {each["episode_id"]: each for each in load(builder).as_numpy_iterator()}
    assert len(episodes) == 12
    first = episodes[b"0"]
    assert first["recorded_episode_id"] == b"e0"
    assert first["rlds_creator:env_id"] == b"can"
    assert json.loads(first["tags"]) == ["good", "fast"]
    assert first["notes"] == b"put it down gently"
    assert first["steps"]["tag:placed"].tolist() == [False, False, True, False, False]
    assert first["steps"]["image"].shape == (5, 8, 8, 3)
    assert [json.loads(keys) for keys in first["steps"]["keys"]][:3] == [
        {"ArrowUp": 1, "Key0": 1},
        {},
        {"ArrowUp": 1, "Key2": 1},
    ]
    assert first["steps"]["info"]["lives"].dtype == np.int32
    assert episodes[b"10"]["notes"] == b""
    assert json.loads(episodes[b"10"]["tags"]) == []
    assert episodes[b"4"]["recorded_episode_id"] == b"e4"  # As old versions store it.


def test_recorded_steps_are_read_in_the_order_of_rlds(tmp_path):
    recording = raw.make_episode(0, 3)
    episode = read(raw.write_directory(tmp_path, [recording]))
    for index, step in enumerate(recording["steps"]):
        for field, value in step.timestep.observation.items():
            np.testing.assert_array_equal(episode.steps["observation"][field][index], value)
        assert episode.steps["image"][index] == step.custom_data["image"]
    np.testing.assert_array_equal(
        episode.steps["action"][:-1], [step.action for step in recording["steps"][1:]]
    )
    assert episode.steps["reward"].tolist() == [1 / 7, 2 / 7, 3 / 7, 0.0]
    assert episode.steps["discount"].tolist() == [1.0, 1.0, 0.0, 0.0]
    assert episode.steps["is_terminal"].tolist() == [False, False, False, True]
    assert episode.steps["action"].dtype == np.float32


@pytest.mark.parametrize("protocol", range(2, 6))
def test_pickled_steps_and_specs_are_restored(protocol):
    data = {
        "steps": [
            envlogger.StepData(dm_env.restart({"x": np.ones(2)}), None, {"é": b"\xff\0"}),
            envlogger.StepData(dm_env.termination(1.0, None), np.int64(3)),
        ],
        "specs": [
            specs.Array((2,), np.float32, "a"),
            specs.BoundedArray((2,), "i4", [0, 1], np.array([5, 6]), "b"),
            specs.DiscreteArray(3),
            specs.StringArray((1,), bytes),
            specs.StringArray(()),
        ],
    }
    actual = loads(pickle.dumps(data, protocol), NAMES)
    np.testing.assert_equal(actual["steps"], data["steps"])
    assert actual["specs"] == data["specs"]
    assert [spec.string_type for spec in actual["specs"][3:]] == [bytes, str]
    steps = loads(raw.dump(raw.make_episode(0, 1), protocol), NAMES)["steps"]
    assert all(type(step) is envlogger.StepData for step in steps)


class Call:
    def __init__(self, *reduced):
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


@pytest.mark.parametrize(
    "call",
    [
        Call(specs.Array, (10**12,), np.dtype("f4"), None),
        Call(specs.StringArray, (1 << 40,), str, None),
        Call(specs.Array, (-1,), np.dtype("f4"), None),
        Call(specs.Array, (1,), "f4,O", None),
        Call(specs.DiscreteArray, "3", np.dtype("i4"), None),
        Call(getattr, dm_env.StepType, "mro"),
        Call(getattr, dm_env.TimeStep, "_make"),
        Call(getattr, "text", "format"),
    ],
)
def test_malformed_specs_and_attributes_are_refused(call):
    function, *arguments = call.reduced
    call.reduced = function, tuple(arguments)
    with pytest.raises(RestrictedPickleError):
        loads(pickle.dumps(call), NAMES)


def test_step_types_are_looked_up_by_name():
    """As the first releases of Python 3.11 write them; pickles cannot change them."""
    mid = Call(getattr, (dm_env.StepType, "MID"))
    assert loads(pickle.dumps([mid]), NAMES) == [dm_env.StepType.MID]
    change = b"cdm_env._environment\nStepType\n(K\0tR}X\5\0\0\0firstK\7sb."
    with pytest.raises(RestrictedPickleError, match="the pickle changes"):
        loads(b"\x80\2" + change, NAMES)


@pytest.mark.slow
@settings(max_examples=4 * settings().max_examples)
@given(st.data())
def test_damaged_pickles_are_refused_or_yield_plain_data(data):
    pickled = bytearray(raw.dump(raw.make_episode(0, 1), data.draw(st.integers(2, 5))))
    for _ in range(data.draw(st.integers(1, 3))):
        pickled[data.draw(st.integers(0, len(pickled) - 1))] = data.draw(st.integers(0, 255))
    pickled = pickled[: data.draw(st.integers(0, len(pickled)))]
    with contextlib.suppress(RestrictedPickleError):  # All other errors are wrong.
        loads(bytes(pickled), NAMES)


@pytest.mark.slow
def test_images_are_not_encoded_again(tmp_path):
    path = raw.write_directory(tmp_path / "raw", [raw.make_episode(0)])
    builder = convert(RldsCreatorSource(path), name="images", data_dir=tmp_path)
    [stored] = load(builder, decode=False)
    assert stored["steps"]["image"].numpy().tolist() == [raw.image(index) for index in range(5)]


@pytest.mark.parametrize(
    ("options", "truncated", "complete"),
    [
        ({"end": "termination"}, False, True),
        ({"end": "truncation"}, True, True),
        ({"end": "nothing"}, True, False),
    ],
)
def test_the_last_step_decides_how_an_episode_ends(tmp_path, options, truncated, complete):
    episode = read(raw.write_directory(tmp_path, [raw.make_episode(0, **options)]))
    assert (episode.truncated, episode.complete) == (truncated, complete)
    assert episode.final_observation_known
    assert (episode.origin.file, episode.origin.begin, episode.origin.end) == ("0.pkl", 0, 5)


def test_an_episode_is_cut_at_a_tag(tmp_path):
    path = raw.write_directory(tmp_path, [raw.make_episode(3, 6, placed=2), raw.make_episode(3, 6)])
    short, long = (read(path, index, truncate_at_tag="placed") for index in range(2))
    assert (short.num_steps, long.num_steps) == (3, 7)
    for field in ("position", "lights"):
        np.testing.assert_array_equal(
            short.steps["observation"][field], long.steps["observation"][field][:3]
        )
    np.testing.assert_array_equal(short.steps["reward"], [1 / 7, 2 / 7, 0.0])
    assert not short.steps["action"][-1].any()
    assert short.steps["is_last"].tolist() == [False, False, True]
    assert not short.steps["is_terminal"].any()
    assert (short.truncated, short.complete) == (True, True)
    assert (long.truncated, long.complete) == (False, True)
    assert (short.metadata["num_steps"], short.metadata["total_reward"]) == (2, 3 / 7)
    assert long.metadata["num_steps"] == 6
    assert short.origin.end == 3


@pytest.mark.parametrize("placed", [0, 4])
def test_an_episode_can_be_cut_at_its_first_or_last_step(tmp_path, placed):
    path = raw.write_directory(tmp_path, [raw.make_episode(0, 4, placed=placed)])
    episode = read(path, truncate_at_tag=["never", "placed"])
    assert episode.num_steps == placed + 1
    assert episode.steps["reward"].dtype == np.float64
    assert (episode.truncated, episode.complete) == (placed == 0, True)


def test_strip_internal_metadata_removes_fields_of_the_tool(tmp_path):
    path = raw.write_directory(tmp_path, [raw.make_episode(0, tags=("good",), notes="gently")])
    source = RldsCreatorSource(path, strip_internal_metadata=True)
    assert source.fields.steps.keys() == {
        *("observation", "action", "reward", "discount", "tag:placed", "tag:start")
    }
    assert not {"tags", "notes"} & source.fields.episode.keys()
    assert not {"tags", "notes"} & source.read("train", 0).metadata.keys()


def test_episodes_in_folders_of_an_archive_are_ordered_by_number(tmp_path):
    path = tmp_path / "download.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for i in (10, 9, 100):
            archive.writestr(f"merged/{i}.pkl", raw.dump(raw.make_episode(i)))
        archive.writestr("merged/README.md", "not an episode")
    source = RldsCreatorSource(path)
    assert [source.key("train", i) for i in range(3)] == [*("merged/9", "merged/10", "merged/100")]
    assert source.read("train", 1).metadata["recorded_episode_id"] == "e10"
    assert pickle.loads(pickle.dumps(source)).read("train", 1).num_steps == 5


def test_fields_of_changing_structure_can_be_read_as_json(tmp_path):
    episode = raw.make_episode(0, 2)
    episode["steps"][0].custom_data["info"]["goal"] = np.arange(3)
    episode["steps"][1].custom_data["info"]["goal"] = np.arange(2)
    path = raw.write_directory(tmp_path, [episode])
    with pytest.raises(SourceError, match=r"0.pkl: custom_data/info/goal: step 1 holds int64 of"):
        RldsCreatorSource(path)
    actual = read(path, json_fields=("keys", "info"))
    assert json.loads(actual.steps["info"][1])["goal"] == [0, 1]


@pytest.mark.slow
def test_the_builder_accepts_options_of_the_source(tmp_path):
    path = raw.write_directory(tmp_path / "raw", [raw.make_episode(0, placed=1)])
    builder = RldsCreator(path=path, data_dir=tmp_path, truncate_at_tag="placed")
    builder.download_and_prepare()
    [episode] = load(builder)
    assert len(episode["steps"]["reward"]) == 2
    assert episode["truncated"]


# --- Errors ---------------------------------------------------------------------------------------


def test_paths_without_a_download_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing' does not exist"):
        RldsCreatorSource(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match=r"holds no episodes: it has no files 0\.pkl"):
        RldsCreatorSource(tmp_path)
    (tmp_path / "file").write_bytes(b"nothing")
    with pytest.raises(SourceError, match="neither a directory nor a zip file"):
        RldsCreatorSource(tmp_path / "file")


def test_two_files_of_one_name_are_refused(tmp_path):
    path = tmp_path / "download.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("0.pkl", b"")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("0.pkl", b"")
    with pytest.raises(SourceError, match=r"2 files have the name 0\.pkl"):
        RldsCreatorSource(path)


def test_an_episode_with_another_tag_is_refused(tmp_path):
    other = raw.make_episode(1)
    for step in other["steps"]:
        step.custom_data["tag:dropped"] = False
    path = raw.write_directory(tmp_path / "raw", [raw.make_episode(0), other])
    with pytest.raises(SourceError, match=r"1\.pkl, .*tag:dropped.*: unexpected"):
        convert(RldsCreatorSource(path), name="tags", data_dir=tmp_path)


def test_logs_of_envlogger_are_refused_with_advice(tmp_path):
    (tmp_path / "metadata.riegeli").touch()
    with pytest.raises(SourceError, match=r'log; open it with format="envlogger"$'):
        RldsCreatorSource(tmp_path)
    with zipfile.ZipFile(tmp_path / "log.zip", "w") as archive:
        archive.writestr("tag/metadata.riegeli", b"")
    with pytest.raises(SourceError, match=r"log; unpack it, and open it with"):
        RldsCreatorSource(tmp_path / "log.zip")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda episode: episode.pop("steps"), "0.pkl, field 'steps': missing; the episode has"),
        (lambda episode: episode.update(steps=[]), r"field 'steps': \[\], expected a list"),
        (lambda episode: episode.update(steps=[1]), "row 0, field 'steps': int, expected StepData"),
        (lambda episode: episode.update(metadata=3), "field 'metadata': 3, expected a dict"),
        (
            lambda episode: episode["steps"].insert(2, episode["steps"][0]),
            "0.pkl: step 2 of 6 is a FIRST step",
        ),
        (
            lambda episode: episode["steps"][0].custom_data.update(image=b"\xff\xd8\xff cut"),
            "row 0, field 'image': .*cut off",
        ),
        (
            lambda episode: [step.custom_data.update({7: 1.0}) for step in episode["steps"]],
            "0.pkl: the custom data of a step has the field 7, expected a name",
        ),
        (
            lambda episode: [
                step.custom_data.update(
                    info=functools.reduce(lambda value, _: {"in": value}, range(90), 1.0)
                )
                for step in episode["steps"]
            ],
            r"0.pkl: info/in/in/\.\.\. is nested more than 25 deep",
        ),
        (
            lambda episode: episode["metadata"].update({1: 2}),
            "0.pkl: metadata has the field 1, expected a name",
        ),
    ],
)
def test_pickles_that_hold_no_episode_are_refused(tmp_path, change, message):
    episode = raw.make_episode(0)
    change(episode)
    with pytest.raises(SourceError, match=message):
        RldsCreatorSource(raw.write_directory(tmp_path, [episode]))


def test_harmful_and_damaged_pickles_are_damaged_episodes(tmp_path):
    class Harm:
        def __reduce__(self):
            return print, ("harm",)

    good = raw.dump(raw.make_episode(0))
    path = raw.write_directory(tmp_path, [good, pickle.dumps(Harm()), good[:-300], good])
    source = RldsCreatorSource(path)
    intact, harmful, cut, last = reading.episodes(source, "train", "0-4")
    assert isinstance(harmful, DamagedEpisode)
    assert "1.pkl, episode 1: the pickle names builtins.print" in str(harmful.error)
    assert "2.pkl, episode 2: the pickle is damaged" in str(cut.error)
    assert (intact.key, last.key) == ("0", "3")


def unexpected_values():
    """Yields functions that put an unexpected value into a step."""
    for timestep in (None, 3, ("a", "tuple")):
        yield lambda step, timestep=timestep: step._replace(timestep=timestep)
    for step_type in (None, 0, "FIRST"):
        yield lambda step, step_type=step_type: step._replace(
            timestep=step.timestep._replace(step_type=step_type)
        )
    for value in ("a\ud800", 10**400, {1: 2, "a": 3}, [[1], [1, 2]], {"a": {1}}, 2**70):
        for field in ("tag:placed", "keys", "info", "image"):
            yield lambda step, value=value, field=field: step._replace(
                custom_data={**step.custom_data, field: value}
            )
        yield lambda step, value=value: step._replace(action=value)
        yield lambda step, value=value: step._replace(timestep=step.timestep._replace(reward=value))


def test_any_pickle_is_an_episode_or_a_source_error(tmp_path):
    good = raw.make_episode(0)
    episodes = [good]
    for change in unexpected_values():
        for row in (0, 2):
            steps = [change(step) if row == i else step for i, step in enumerate(good["steps"])]
            episodes.append({**good, "steps": steps})
    for value in (
        3,
        "text",
        [1],
        {"episode_id": 10**400},
        {"num_steps": "x"},
        {"total_reward": []},
        {7: "a number as a name"},
    ):
        episodes.append({**good, "metadata": value})
    source = RldsCreatorSource(raw.write_directory(tmp_path / "all", episodes))
    actual = [
        episode
        for piece in reading.parts(source, "train")
        for episode in reading.episodes(source, "train", piece)
    ]
    assert [episode.key for episode in actual] == [str(i) for i in range(len(episodes))]
    assert sum(isinstance(episode, DamagedEpisode) for episode in actual) > len(episodes) / 2
    for index, episode in enumerate(episodes[1:40:3]):  # The first one decides the fields.
        with contextlib.suppress(SourceError):
            first = raw.write_directory(tmp_path / str(index), [episode])
            list(RldsCreatorSource(first).fields.steps)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (b"GIF89a", "not a JPEG image: it begins with"),
        (raw.image(1)[:-1], "a JPEG image that is cut off"),
        (black_jpeg((8, 8)), "an image of 1 channels, but 3 in 0.pkl"),
        (np.zeros((8, 8, 3), np.uint8), "ndarray, expected the bytes of a JPEG file"),
    ],
    ids=["another format", "cut off", "grey", "an array"],
)
def test_malformed_images_are_damage(tmp_path, image, message):
    episode = raw.make_episode(1, 2)
    for step in episode["steps"]:
        step.custom_data["image"] = raw.image(0)
    episode["steps"][2].custom_data["image"] = image
    if isinstance(image, np.ndarray):
        for step in episode["steps"]:
            step.custom_data["image"] = image
    path = raw.write_directory(tmp_path, [raw.make_episode(0), episode])
    with pytest.raises(SourceError, match=rf"1.pkl, episode 1, row \d, field 'image': {message}"):
        read(path, 1)


def test_named_pipes_are_refused(tmp_path):
    raw.write_directory(tmp_path / "directory", [raw.make_episode(0)])
    os.mkfifo(tmp_path / "directory" / "1.pkl")
    os.mkfifo(tmp_path / "download.zip")
    with pytest.raises(SourceError, match="not a regular file"):
        read(tmp_path / "directory", 1)
    with pytest.raises(SourceError, match="not a regular file"):
        RldsCreatorSource(tmp_path / "download.zip")


def test_an_episode_of_another_environment_is_refused(tmp_path):
    other = raw.make_episode(1)
    other["action_spec"] = raw.SPECS["reward_spec"]
    path = raw.write_directory(tmp_path, [raw.make_episode(0), other])
    with pytest.raises(
        SourceError, match=r"1.pkl, episode 1, field 'action_spec': .*make one dataset for"
    ):
        read(path, 1)


def test_damaged_zip_files_and_false_sizes_are_refused(tmp_path):
    path = raw.write_zip(tmp_path / "download.zip", [raw.make_episode(0), raw.make_episode(1)])
    data = bytearray(path.read_bytes())
    data[data.rindex(b"e1")] ^= 1  # In the second pickle, whose checksum then differs.
    (tmp_path / "changed.zip").write_bytes(data)
    with pytest.raises(SourceError, match=r"1.pkl, episode 1: cannot be read: .*Bad CRC-32"):
        read(tmp_path / "changed.zip", 1)
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02")
    for position in (entry + 20, entry + 24):  # The sizes in the directory.
        data[position : position + 4] = (2**32 - 2).to_bytes(4, "little")
    (tmp_path / "claims.zip").write_bytes(data)
    with pytest.raises(SourceError, match=r"0.pkl: .* bytes are declared"):
        RldsCreatorSource(tmp_path / "claims.zip")
