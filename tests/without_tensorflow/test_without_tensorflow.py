"""From a recording to a dataset with validation and statistics, without TensorFlow.

`make test-without-tensorflow` runs this in an environment of its own. In other environments, a
subprocess hides TensorFlow.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

HAS_TENSORFLOW = importlib.util.find_spec("tensorflow") is not None
GOLDEN = Path(__file__).parents[1] / "golden" / "tfds_4_9_10"

# Makes imports of TensorFlow fail.
HIDE = """
import importlib.util, sys
sys.modules.update(dict.fromkeys(["tensorflow", "tensorflow_datasets", "tensorflow_metadata"]))
"""

JOURNEY = """
import pickle
import sys
from pathlib import Path

import dm_env
import h5py
import numpy as np
from dm_env import specs

import envlogger
import rlds_tools
from rlds import alignment, feeds, normalization, sources, statistics, validation
from rlds.feeds.compat import loader_profiles
from tfds_files import Dataset, append_to, Features, Tensor, open_folder

directory, golden = map(Path, sys.argv[1:])


class Counter(dm_env.Environment):
    def reset(self):
        self.count = 0
        return dm_env.restart(np.zeros(2, np.float32))

    def step(self, action):
        self.count += 1
        observation = np.full(2, self.count, np.float32)
        ends = self.count == 4
        return (dm_env.termination if ends else dm_env.transition)(float(action), observation)

    def observation_spec(self):
        return specs.Array((2,), np.float32)

    def action_spec(self):
        return specs.BoundedArray((), np.int64, 0, 9)


with envlogger.EnvLogger(Counter(), data_directory=directory) as env:
    for episode in range(3):
        env.reset()
        for action in range(1, 5):
            env.step(action)

with envlogger.Reader(directory) as reader:
    episodes = [
        {"steps": reader.columns(i, rlds=True), "episode_id": str(i)}
        for i in range(len(reader.episodes))
    ]
assert len(episodes) == 3
assert episodes[0]["steps"]["action"].tolist() == [1, 2, 3, 4, 0]

# The same episode from raw rows.
raw = alignment.from_sars(
    observation=np.repeat(np.arange(5, dtype=np.float32)[:, np.newaxis], 2, axis=1),
    action=np.arange(1, 5),
    reward=np.arange(1.0, 5.0),
    discount=np.array([1.0, 1.0, 1.0, 0.0]),
    terminal=True,
)
assert raw.keys() == episodes[0]["steps"].keys()
for name, column in raw.items():
    np.testing.assert_array_equal(column, episodes[0]["steps"][name])

report = validation.validate(episodes, finite_fields=["reward"])
assert str(report) == "valid: 3 episodes, 15 steps", report
described = statistics.compute_statistics(episodes)
assert (described.num_transitions, described.num_trajectories) == (12, 3)
assert described["action"].mean == described["reward"].mean == 2.5
described = statistics.Statistics.from_json(described.to_json())
normal = normalization.normalize(episodes[0]["steps"], described, kind="bounds")
assert normal["action"][[0, 3]].tolist() == [-1.0, 1.0]

opened = sources.open(directory)
assert (opened.format, len(opened)) == ("envlogger", 3)
columns = ({"steps": opened.columns(index)} for index in range(3))
assert statistics.compute_statistics(columns)["reward"].mean == 2.5

file = directory.parent / "hopper-medium-v2.hdf5"
with h5py.File(file, "w") as data:
    for name, size in {"observations": (6, 11), "actions": (6, 3), "rewards": 6}.items():
        data[name] = np.ones(size, np.float32)
    data["terminals"] = data["timeouts"] = np.arange(6) % 3 == 2
opened = sources.open(file)
assert opened.format == "d4rl", opened
assert opened.columns(1, ["action"], 0, 2)["action"].tolist() == [[1, 1, 1]] * 2

for folder in sorted(golden.glob("*")):
    if not folder.is_dir() or (folder.name == "array_record" and sys.platform == "win32"):
        continue
    dataset = open_folder(folder)
    assert [len(split) for split in dataset.values()] == [3, 2]
    example = dataset["train"].example(0)
    assert example["steps"]["is_first"][0]
    flags = sources.open(folder, "train").columns(0, ["is_first"])["is_first"]
    np.testing.assert_array_equal(flags, example["steps"]["is_first"])

log = directory.parent / "catch"
assert rlds_tools.record("catch", log, episodes=2).steps == 20
card = rlds_tools.card(log, croissant=directory.parent / "croissant.json")
assert "| `train` | 2 | 20 |" in card.readme

# Batches of a new dataset, resumed in the middle.
table = feeds.open(log)
steps = Features(
    features={
        name: Tensor(dtype=field.column_dtype, shape=field.shape, encoding=encoding)
        for name, field in table.fields.items()
        for encoding in ["bytes" if field.column_dtype == np.float64 else "none"]
    }
)
folder = directory.parent / "dataset"
features = Features(features={"steps": Dataset(feature=steps)})
with append_to(folder, features, "catch") as writer:
    for episode in range(table.num_episodes):
        writer.add({"steps": table.read(episode)})
written = feeds.open(folder)
assert not written.storage.why_cached, written.storage.why_cached
for other in (table, written):
    feed = feeds.Feed(other.transitions(n=2), 6, epochs=2, shuffle="global")
    batches = feed.iterate(pickle.loads(pickle.dumps(feed)).state_dict(2))
    for number, batch in enumerate(batches, 2):
        np.testing.assert_array_equal(batch["action"], feed[number]["action"])
    assert batches.batch == len(feed) == 6
recorded = [other.steps().batch(np.arange(20))["observation"] for other in (table, written)]
np.testing.assert_array_equal(*recorded)

assert not [name for name, module in sys.modules.items() if module and "tensorflow" in name]
for module in ("rlds.transformations", "rlds.tfds", "tfds_builders"):
    try:
        __import__(module)
    except ImportError as error:
        words = "needs TensorFlow and TensorFlow Datasets; tensorflow is not installed: pip install"
        assert str(error) == f"{module} {words} rlds-ecosystem", error
    else:
        raise AssertionError(module)
"""


def test_every_step_from_recording_to_statistics_works_without_tensorflow(tmp_path: Path) -> None:
    assert not (HAS_TENSORFLOW and "WITHOUT_TENSORFLOW" in os.environ)
    code = (HIDE if HAS_TENSORFLOW else "") + JOURNEY
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(tmp_path / "log"), str(GOLDEN)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
