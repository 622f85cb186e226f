"""Metadata of datasets: merges compare it, and edits keep it."""

import json

import gymnasium
import h5py
import hostile_sources
import minari
import numpy as np
import pytest
from export_options import options_for
from minari.data_collector import EpisodeBuffer

import rlds.sources
from rlds import editing
from rlds.editing import Add, Drop, Merge, Rename
from rlds.editing.metadata_merging import merge_metadata
from rlds.sources.episode_fields import as_converted
from rlds_ecosystem.model.nests import leaves_at, nest


def write_demonstrations(path, env_args=None, **attributes):
    """Writes a robomimic file with two demonstrations; their actions depend on its name."""
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["total"] = 6
        attributes |= {} if env_args is None else {"env_args": json.dumps(env_args)}
        for name, value in attributes.items():
            data.attrs[name] = value
        for k in range(2):
            demo = data.create_group(f"demo_{k}")
            demo.attrs["num_samples"], demo.attrs["model_file"] = 3, "<mujoco/>"
            demo["actions"] = np.full((3, 2), hash(path.name) % 100 + k, np.float32)
            demo["obs/eef"], demo["obs/gripper"] = np.zeros((3, 3)), np.ones((3, 1))
            demo["rewards"], demo["dones"] = np.zeros(3), np.array([0, 0, 1])


def make_env_args(*, is_delta):
    controller = {"type": "OSC_POSE", "control_delta": is_delta}
    return {"env_name": "Lift", "type": 1, "env_kwargs": {"controller_configs": controller}}


def read_attributes(path):
    with h5py.File(path) as file:
        return {
            name: json.loads(value) if name == "env_args" else value
            for name, value in file["data"].attrs.items()
        }


def test_merge_of_different_env_args_needs_a_policy(tmp_path):
    a, b, output = (tmp_path / name for name in ("a.hdf5", "b.hdf5", "made.hdf5"))
    write_demonstrations(a, make_env_args(is_delta=True), date="monday", lab="x")
    write_demonstrations(b, make_env_args(is_delta=False), date="tuesday")
    with pytest.raises(ValueError, match=r"control_delta: true in .*a.hdf5, false in .*b.hdf5"):
        editing.prepare_edit(a, [Merge([b])])
    plan = str(editing.prepare_edit(a, [Merge([b], metadata="first")]))
    assert "control_delta: true in" in plan
    assert "the value of the first dataset is used for all" in plan
    assert "/date: " in plan
    assert f"attributes/lab: missing in {b}; used for all" in plan
    rlds.edit(a, Merge([b], metadata="first"), to=output)
    assert read_attributes(output)["env_args"] == make_env_args(is_delta=True)
    assert read_attributes(output)["lab"] == "x"
    assert "date" not in read_attributes(output)
    with pytest.raises(ValueError, match="metadata: got 'last', expected one of"):
        editing.prepare_edit(a, [Merge([b], metadata="last")])


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("agibot/cameras", (["head"], ["head", "hand"])),
        ("aloha/options/instruction", ("fold", "pour")),
        ("droid/cameras", (["wrist"], ["wrist", "ext1"])),
        ("imitation/info/splits/train/num_bytes", (1, 2)),
        ("lerobot/files/README.md/text", ("Mine.", "Yours.")),
        ("lerobot/info/features/action/names", (None, {"motors": ["a"]})),
        ("lerobot/info/features/observation.images.a/video_info/video.codec", ("h264", "av1")),
        ("maniskill/json/commit_info", (None, {"branch": "main"})),
        ("mcap/topics//joints/encoding", ("cdr", "json")),
        ("minari/eval_env_spec", ('{"max_episode_steps": 5}', '{"max_episode_steps": 6}')),
        ("minari/num_episodes_average_score", (10, 100)),
        ("robomimic/files/{}/attributes/num_demos", (50, 49)),
        ("robomind/options/instructions", ({"a": "pick"}, {"b": "place"})),
        ("sb3/n_envs", (1, 8)),
        ("tolerance", (float("nan"), -float("nan"))),
    ],
)
def test_merge_accepts_usual_differences_of_metadata(path, values):
    a, b = (nest({path.format(name): value}) for name, value in zip("ab", values))
    merge_metadata({"a": a, "b": b}, "error")
    merge_metadata({"b": b, "a": a}, "error")


def test_policy_episodes_keeps_metadata_in_each_episode(tmp_path):
    a, b, output = (tmp_path / name for name in ("a.hdf5", "b.hdf5", "made.hdf5"))
    write_demonstrations(a, make_env_args(is_delta=True))
    write_demonstrations(b, make_env_args(is_delta=False))
    rlds.edit(a, Merge([b], metadata="episodes"), to=output)
    episodes = rlds.sources.open(output)
    actual = [json.loads(episode.metadata["dataset_metadata"]) for episode in episodes]
    texts = [
        metadata["robomimic"]["files"][name]["attributes"]["env_args"]
        for metadata, name in zip(actual, ("a.hdf5",) * 2 + ("b.hdf5",) * 2)
    ]
    deltas = [
        json.loads(text)["env_kwargs"]["controller_configs"]["control_delta"] for text in texts
    ]
    assert deltas == [True, True, False, False]
    assert read_attributes(output)["env_args"]["env_name"] == ""  # The environments differ.
    assert "dataset_metadata" in str(editing.prepare_edit(a, [Merge([b], metadata="episodes")]))
    # A third dataset that agrees with the first does not hide that the second differs.
    write_demonstrations(tmp_path / "c.hdf5", make_env_args(is_delta=True))
    for policy, kind in (("episodes", ""), ("first", "delta")):
        merge = Merge([b, tmp_path / "c.hdf5"], metadata=policy)
        assert editing.prepare_edit(a, [merge]).view.fields.steps["action"].kind == kind


def test_export_of_files_with_different_env_args_needs_env_args(tmp_path):
    (tmp_path / "all").mkdir()
    for name, is_delta in (("a", True), ("b", False)):
        write_demonstrations(tmp_path / f"all/{name}.hdf5", make_env_args(is_delta=is_delta))
    with pytest.raises(ValueError, match=r"2 different env_args, .* Pass env_args="):
        rlds.sources.export(tmp_path / "all", "robomimic", tmp_path / "made.hdf5")
    env_args = make_env_args(is_delta=True)
    rlds.sources.export(tmp_path / "all", "robomimic", tmp_path / "made.hdf5", env_args=env_args)
    assert read_attributes(tmp_path / "made.hdf5")["env_args"] == env_args


def quality(episode):
    return 1.0


def half(episode):
    return np.full(len(episode), 0.5, np.float32)


@pytest.mark.parametrize(
    "name", ["aloha", "d4rl", "lerobot_2", "maniskill", "minari_hdf5", "robomimic_all", "zarr"]
)
def test_field_changes_keep_metadata_of_other_fields(name, tmp_path):
    path = hostile_sources.write_raw(name, tmp_path)
    options = hostile_sources.OPTIONS.get(name, {})
    before = rlds.sources.open(path, "all", **options)
    paths = [p for p, _ in leaves_at(before.spec["steps"], None) if p.startswith("observation")]
    operations = [Add("steps/extra", half), Add("quality", quality)]
    operations += [Rename(paths[0], f"{paths[0]}_2")] * (len(paths) > 1)
    stored = dict(leaves_at(before.metadata, None))
    metadata = as_converted(before[0]).metadata
    rlds.edit(path, *operations, options=options, target_options=options_for(before.format, before))
    after = rlds.sources.open(path, "all")
    actual = dict(leaves_at(after.metadata, None))
    changed = {key for key, value in stored.items() if actual.get(key, value) != value}
    assert {
        key for key in changed if "space" not in key and not key.startswith("lerobot/")
    } == set()
    leaf_name = paths[0].removeprefix("observation/").replace("/", ".")
    lost = {key for key in stored.keys() - actual.keys() if leaf_name not in key}
    assert lost == set()
    assert as_converted(after[0]).metadata.keys() >= metadata.keys()


def test_edits_keep_attributes_that_robomimic_needs_for_replays(tmp_path):
    path = tmp_path / "a.hdf5"
    write_demonstrations(path, make_env_args(is_delta=True))
    changes = [Rename("observation/eef", "observation/hand"), Add("quality", quality)]
    rlds.edit(path, *changes, Drop("observation/gripper"), Add("steps/observation/extra", half))
    with h5py.File(path) as file:
        assert json.loads(file["data"].attrs["env_args"]) == make_env_args(is_delta=True)
        assert {demo.attrs["model_file"] for demo in file["data"].values()} == {"<mujoco/>"}
        assert set(file["data/demo_0/obs"]) == {"hand", "extra"}


def test_edits_keep_environment_and_author_of_minari(tmp_path, monkeypatch):
    """Minari itself reads the spaces, the environment and the author."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    cart = gymnasium.make("CartPole-v1")
    rewards = {"rewards": [1.0, 1.0], "terminations": [False, True], "truncations": [False, False]}
    observations = np.zeros((3, 4), np.float32)
    buffer = EpisodeBuffer(
        observations=list(observations), actions=[0, 1], infos={"x": [0, 1, 2]}, **rewards
    )
    details = {"author": "a", "author_email": "a@b.org", "code_permalink": "https://c.org"}
    details |= {"algorithm_name": "d", "description": "Poles.", "requirements": []}
    output = minari.create_dataset_from_buffers(
        "cart/test-v0", [buffer], cart, eval_env=cart, **details
    )
    before, spaces = output.spec.env_spec, (output.observation_space, output.action_space)
    path = tmp_path / "cart/test-v0"
    for operation in (Rename("infos/x", "infos/y"), Add("quality", quality), Drop("infos/y")):
        rlds.edit(path, operation, to=tmp_path / "cart/next-v0")
        path.rename(tmp_path / operation.do)
        (tmp_path / "cart/next-v0").rename(path)
        after = minari.MinariDataset(path / "data")
        assert (after.observation_space, after.action_space) == spaces
        assert after.spec.env_spec == before
        metadata = json.loads((path / "data/metadata.json").read_text())
        assert metadata["author"] == ["a"]
        assert metadata["code_permalink"] == details["code_permalink"]
