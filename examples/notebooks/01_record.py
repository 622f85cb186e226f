# %% [markdown]
# # Recording: metadata, crash recovery, datasets
#
# You record a simulated arm with metadata, kill a recorder during its work and recover the data,
# and record directly into a dataset.

# %%
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gymnasium
import matplotlib.pyplot as plt
import numpy as np
import tensorflow_datasets as tfds

import envlogger
import rlds
import rlds_tools
from envlogger.backends.rlds_utils import maybe_recover_last_shard
from envlogger.backends.tfds_backend_writer import TFDSBackendWriter
from envlogger.callbacks import EpisodeStatistics
from envlogger.gymnasium_adapter import GymnasiumAdapter, record_reset

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])
plt.rcParams["figure.constrained_layout.use"] = True
folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## Metadata
#
# An arm with two joints reaches for a target in MuJoCo. The recorder always stores observations,
# actions and rewards. Three arguments add metadata: `step_fn` for each step, `episode_fn` for
# each episode, `metadata` for the whole recording.


# %%
def step_fn(timestep, action, env):
    """Returns step metadata: the position of the fingertip, simulation time and wall-clock time."""
    return {
        "fingertip": env.unwrapped.get_body_com("fingertip")[:2],
        "simulation_time": env.unwrapped.data.time,
        "timestamp": time.time(),
    }


def torques(observation, damping):
    """A spring pulls the fingertip to the target, and the joints have friction."""
    cos_1, cos_2, sin_1, sin_2 = observation[:4]
    both = np.arctan2(sin_1, cos_1) + np.arctan2(sin_2, cos_2)
    second = 0.11 * np.array([-np.sin(both), np.cos(both)])
    first = 0.1 * np.array([-sin_1, cos_1]) + second
    torque = -20 * np.stack([first, second]) @ observation[8:10] - damping * observation[6:8]
    return np.clip(torque, -1, 1).astype(np.float32)


def reach(env, damping):
    """Plays one episode."""
    timestep = env.reset()
    while not timestep.last():
        timestep = env.step(torques(timestep.observation, damping))


# %%
episode_metadata = {}  # Of the current episode.
arm = GymnasiumAdapter(gymnasium.make("Reacher-v5", max_episode_steps=100), seed=5)
with_reset = record_reset(EpisodeStatistics())  # Seed, options, return, length and seconds.


def episode_fn(timestep, action, env):
    """Returns episode metadata: seed and options of the reset, result, friction of the joints."""
    more = with_reset(timestep, action, env)
    return None if more is None else {**more, **episode_metadata}


with envlogger.EnvLogger(
    arm,
    data_directory=folder / "arm",
    step_fn=step_fn,
    episode_fn=episode_fn,
    metadata={"environment": "Reacher-v5", "agent_id": "a spring"},
    validate=True,  # Checks each step against the specs of the environment.
) as env:
    for damping in (0.0, 0.04, 0.2):
        for _ in range(5):
            episode_metadata.update(damping=damping)
            reach(env, damping)

# %% [markdown]
# ## Reading
#
# A `Reader` returns single steps exactly as recorded. `columns` returns a whole episode as
# arrays, which is many times faster. The figure shows the paths of three episodes, and the time
# of a step.

# %%
reader = envlogger.Reader(folder / "arm")
print(reader.metadata()["agent_id"])
print(reader.action_spec())
print(reader.episode_metadata()[0])
reader.episodes[0][1].custom_data

# %%
information = list(reader.episode_metadata())
episodes = [reader.columns(index, rlds=True) for index in range(len(reader.episodes))]

figure, axes = plt.subplots(1, 4, figsize=(13, 3.6), width_ratios=[1, 1, 1, 1.2])
for axis, damping in zip(axes, (0.0, 0.04, 0.2), strict=False):
    for columns, metadata in zip(episodes, information, strict=True):
        if metadata["damping"] == damping:
            path, target = columns["fingertip"], columns["observation"][0, 4:6]
            axis.scatter(*path.T, c=columns["simulation_time"], cmap="viridis", s=5)
            axis.plot(*target, "r+", ms=11, mew=2)
    axis.set(title=f"friction {damping}", xlim=(-0.23, 0.23), ylim=(-0.23, 0.23), aspect="equal")
    axis.set(xlabel="x (m)", xticks=(-0.2, 0, 0.2), yticks=(-0.2, 0, 0.2))
axes[0].set(ylabel="y (m)")
waited = np.concatenate([np.diff(columns["timestamp"]) for columns in episodes])
axes[3].hist(1e3 * waited, bins=np.geomspace(0.05, 20, 40), edgecolor="white", lw=0.5)
axes[3].set(title="Time between steps", xlabel="milliseconds", ylabel="steps", xscale="log")
plt.show()

# %% [markdown]
# *First three: paths of the fingertip from the start (dark) to the end (bright), and the targets
# (red). Without friction the fingertip circles, with high friction it moves slowly. Right: for
# most steps, simulator and recorder together take a fraction of a millisecond. A background
# thread writes, so the environment rarely waits.*
#
# A report also works for recordings, even during the recording:

# %%
rlds_tools.report(folder / "arm")

# %% [markdown]
# ## Crash recovery
#
# Another process records and is killed without warning, as by `kill -9` or if memory runs out. It
# cannot write its index any more.

# %%
script = """
import sys, time, envlogger
from envlogger.testing.catch_env import Catch

with envlogger.EnvLogger(Catch(), data_directory=sys.argv[1], flush_interval=1.0) as env:
    while True:
        timestep = env.reset()
        while not timestep.last():
            timestep = env.step(1)
            time.sleep(0.002)
        print("episode", flush=True)
"""
process = subprocess.Popen(
    [sys.executable, "-c", script, str(folder / "killed")], stdout=subprocess.PIPE, text=True
)
recorded = 0
begin = time.monotonic()
while time.monotonic() < begin + 6 or not recorded:
    process.stdout.readline()
    recorded += 1
process.kill()
process.wait()

# %% [markdown]
# `Reader` opens the remaining files. `recover` rebuilds the index from the stored steps, here in
# a copy. The command is `rlds recover killed -o recovered`. The figure compares recorded and
# recovered episodes.

# %%
with envlogger.Reader(folder / "killed") as killed:
    readable = len(killed.episodes)

rlds_tools.recover(folder / "killed", folder / "recovered")

# %%
with envlogger.Reader(folder / "recovered") as recovered:
    num_recovered = len(recovered.episodes)

figure, axis = plt.subplots(figsize=(9, 2.4))
counts = {"played": recorded, "readable after the kill": readable, "after recover": num_recovered}
bars = axis.barh(list(counts), list(counts.values()), color=["0.6", "C2", "C1"], height=0.6)
axis.bar_label(bars, padding=4)
axis.set(title="Episodes", xlabel="number of episodes", xlim=(0, 1.12 * recorded))
axis.invert_yaxis()
axis.grid(axis="y", visible=False)
plt.show()

# %% [markdown]
# *This recorder flushes every second; the default is 5 seconds. Only steps after the last flush
# are lost.*
#
# ## Recording into a dataset
#
# With the TFDS backend, the recorder writes the files of TensorFlow Datasets directly. You define
# the features once. Two recorders, on one machine or two, write to two directories.

# %%
config = rlds.tfds.DatasetConfig(
    name="arm",
    observation_info=tfds.features.Tensor(shape=(10,), dtype=np.float64),
    action_info=tfds.features.Tensor(shape=(2,), dtype=np.float32),
    reward_info=np.float64,
    discount_info=np.float64,
    step_metadata_info={
        "fingertip": tfds.features.Tensor(shape=(2,), dtype=np.float64),
        "simulation_time": np.float64,
        "timestamp": np.float64,
    },
    episode_metadata_info={"damping": np.float64},
)

for machine in (1, 2):
    with envlogger.EnvLogger(
        arm,
        backend=TFDSBackendWriter,
        data_directory=folder / f"machine {machine}",
        ds_config=config,
        float64="bytes",  # Every bit: TFDS would round it to float32.
        step_fn=step_fn,
        episode_fn=lambda timestep, action, env: dict(episode_metadata),
    ) as env:
        for damping in np.geomspace(0.005, 0.5, 60)[machine - 1 :: 2]:
            episode_metadata.update(damping=float(damping))
            reach(env, damping)

# %% [markdown]
# A directory with a `features.json` is a dataset. TensorFlow Datasets opens one directory, or
# several as one dataset. If a recorder was killed, the next recorder in that directory recovers
# its last episodes. `maybe_recover_last_shard` recovers them without a recorder.

# %%
directories = sorted(path.parent for path in folder.rglob("features.json"))
print([directory.name for directory in directories])

builder = maybe_recover_last_shard(tfds.builder_from_directory(directories[0]))
print("machine 1:", builder.info.splits["train"].num_examples, "episodes")
both = tfds.builder_from_directories(directories)
print("both:", both.info.splits["train"].num_examples, "episodes")

# %%
frictions, distances = [], []
for episode in both.as_dataset(split="train"):
    (steps,) = episode[rlds.STEPS].batch(1000)
    frictions.append(episode["damping"].numpy())
    distances.append(100 * np.linalg.norm(steps[rlds.OBSERVATION][-1, 8:10]))

figure, axis = plt.subplots(figsize=(7, 3.6))
axis.scatter(frictions, distances, s=28, alpha=0.8)
axis.set(
    title="After 100 steps",
    xlabel="friction of the joints",
    ylabel="distance to the target (cm)",
    xscale="log",
)
plt.show()

# %% [markdown]
# *Sixty episodes from two directories. With very low or very high friction, the arm stays away
# from the target.*
#
# The [tour](00_tour.ipynb) records first and converts later. That is safer: a recording keeps all
# values, and the conversion derives the features.
