# %% [markdown]
# # Minari and D4RL
#
# You record a dataset with Minari, write a file in the format of D4RL, and open both like a
# recording of your own. Then you convert them to RLDS datasets, mix them, and export them to
# their formats again.

# %%
import os
import tempfile
from pathlib import Path

import gymnasium
import h5py
import matplotlib.pyplot as plt
import minari
import numpy as np
import tensorflow as tf

import rlds
import rlds.sources
import tfds_builders
from rlds import transformations as rt

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])
plt.rcParams["figure.constrained_layout.use"] = True
folder = Path(tempfile.mkdtemp())
os.environ["MINARI_DATASETS_PATH"] = str(folder / "minari")

# %% [markdown]
# ## Two behaviours
#
# MuJoCo simulates a pole on a cart. The expert is a controller, in some episodes with noise. The
# beginner pushes at random.


# %%
def expert(observation, rng, noise):
    return np.clip(observation @ [1.0, 12.0, 1.5, 2.0] + noise * rng.normal(size=1), -3, 3)


def beginner(observation, rng):
    return rng.uniform(-0.6, 0.6, size=1)


def make_env():
    return gymnasium.make("InvertedPendulum-v5", max_episode_steps=200)


# %% [markdown]
# ## Minari recording
#
# `DataCollector` is Minari's recorder. It writes the dataset to a folder with HDF5 files.

# %%
rng = np.random.default_rng(0)
collector = minari.DataCollector(make_env(), record_infos=False)
for seed in range(30):
    observation, _ = collector.reset(seed=seed)
    noise, done = rng.uniform(0.3, 2.2), False
    while not done:
        action = expert(observation, rng, noise).astype(np.float32)
        observation, _, terminated, truncated, _ = collector.step(action)
        done = terminated or truncated
collector.create_dataset(
    "pole/expert-v0",
    eval_env="InvertedPendulum-v5",
    algorithm_name="a linear controller with noise",
    author="you",
    author_email="you@example.org",
    code_permalink="https://example.org",
    description="A pole on a cart.",
)
collector.close()

# %% [markdown]
# ## D4RL file
#
# A D4RL file contains one table with the transitions of all episodes. At the end of an episode,
# `terminals` or `timeouts` is true. This cell writes such a file.

# %%
rows = {name: [] for name in ("observations", "actions", "rewards", "terminals", "timeouts")}
rows["next_observations"] = []
env = make_env()
for index in range(80):
    observation, _ = env.reset(seed=1000 + index)
    done = False
    while not done:
        action = beginner(observation, rng).astype(np.float32)
        following, reward, terminated, truncated, _ = env.step(action)
        done = terminated or truncated
        for name, value in zip(
            rows, (observation, action, reward, terminated, truncated, following), strict=True
        ):
            rows[name].append(value)
        observation = following

d4rl_file = folder / "pole-random-v0.hdf5"
with h5py.File(d4rl_file, "w") as file:
    for name, values in rows.items():
        dtype = bool if name in ("terminals", "timeouts") else np.float32
        file[name] = np.array(values, dtype)
    file["metadata/algorithm"] = "random"

# %% [markdown]
# ## Reading both formats
#
# `rlds.sources.open` recognizes the format of a path. Episodes of all formats have the same
# fields with the same meaning. The figure compares the rows of the D4RL file with its episodes.

# %%
from_minari = rlds.sources.open(folder / "minari" / "pole" / "expert-v0")
from_d4rl = rlds.sources.open(d4rl_file)
for episodes in (from_minari, from_d4rl):
    print(episodes)
    print("    fields of a step:", *episodes.spec["steps"])
    print("    first key:", episodes[0].key, " truncated:", episodes[0].truncated)

# %%
ends = np.flatnonzero(np.array(rows["terminals"]) | np.array(rows["timeouts"]))[:6]
angles = np.degrees(np.array(rows["observations"])[: ends[-1] + 1, 1])

figure, (above, below) = plt.subplots(2, 1, figsize=(11, 4.8))
above.plot(angles, "0.3", lw=1)
for end in ends:
    above.axvline(end + 0.5, color="C2", lw=1, ls="--")
above.set(title="The table: rows of all episodes", xlabel="row", ylabel="angle (degrees)")
begin = 0
for index in range(6):
    observations = from_d4rl.columns(index, ["observation"])["observation"]
    times = begin + np.arange(len(observations))
    below.plot(times, np.degrees(observations[:, 1]), color=f"C{index}", lw=1.5)
    below.plot(times[-1], np.degrees(observations[-1, 1]), "o", color=f"C{index}")
    begin += len(observations)
below.set(title="The episodes, with their final observations", xlabel="step")
below.set(ylabel="angle (degrees)")
plt.show()

# %% [markdown]
# *Top: the first rows of the file; a line marks each end of an episode. Bottom: the episodes.
# Each has one more observation than rows: the observation after the last action (a dot), which
# the file stores in `next_observations`.*
#
# ## Conversion
#
# One call converts each dataset. TensorFlow Datasets loads the results on any machine. The
# metadata of a result names its origin.

# %%
builders = {
    "Minari, expert": tfds_builders.convert(
        from_minari.source, name="pole_expert", data_dir=folder / "data"
    ),
    "D4RL, random": tfds_builders.convert(
        from_d4rl.source, name="pole_random", data_dir=folder / "data"
    ),
}
for name, builder in builders.items():
    print(name, "-", builder.info.metadata["conversion"])


# %% [markdown]
# ## Comparison
#
# After the conversion, the same code works for both datasets. The figure compares their states
# and returns.


# %%
def common(episode):
    """Returns the fields that both datasets have, in the same dtypes."""
    steps = episode[rlds.STEPS]
    names = (rlds.OBSERVATION, rlds.ACTION, rlds.REWARD)
    return {
        rlds.STEPS: {
            **{name: tf.cast(steps[name], tf.float32) for name in names},
            **{name: steps[name] for name in (*rlds.STEP_FLAGS,)},
        }
    }


datasets = {name: rlds.tfds.load(builder).map(common) for name, builder in builders.items()}

figure, axes = plt.subplots(1, 3, figsize=(13, 3.9), width_ratios=[3, 3, 2])
for axis, (name, dataset), cmap in zip(axes, datasets.items(), ("Blues", "Oranges"), strict=False):
    observations = np.concatenate([e[rlds.STEPS][rlds.OBSERVATION] for e in dataset])
    shown = axis.hexbin(
        np.degrees(observations[:, 1]),
        observations[:, 3],
        gridsize=35,
        extent=(-12, 12, -3, 3),
        bins="log",
        mincnt=1,
        cmap=cmap,
    )
    axis.set(title=name, xlabel="angle (degrees)", ylabel="angular velocity (rad/s)")
    figure.colorbar(shown, ax=axis, label="steps")
returns = [[float(rt.episode_return(e)) for e in dataset] for dataset in datasets.values()]
for column, values in enumerate(returns):
    spread = column + rng.uniform(-0.15, 0.15, len(values))
    axes[2].scatter(spread, values, s=22, alpha=0.7, color=("C0", "C2")[column])
axes[2].set(title="Returns", ylabel="return", xlim=(-0.5, 1.5))
axes[2].set_xticks([0, 1], list(datasets))
plt.show()

# %% [markdown]
# *Left and middle: the number of visits of each state. The expert keeps the pole upright; the
# pole of the beginner falls. Right: the return of each episode.*
#
# ## Scores and mixtures
#
# D4RL scores are 0 for a random policy and 100 for an expert. This cell mixes both datasets by
# weight, and plots the scores of the mixtures.

# %%
low, high = np.mean(returns[1]), np.mean(returns[0])
shares = (0.0, 0.25, 0.5, 0.75, 1.0)
scores = []
for share in shares:
    mixture = rt.mix(list(datasets.values()), weights=[share, 1 - share], seed=0)
    drawn = [float(rt.episode_return(episode)) for episode in mixture.take(100)]
    scores.append(100 * (np.array(drawn) - low) / (high - low))

figure, axis = plt.subplots(figsize=(7, 3.6))
for share, values in zip(shares, scores, strict=True):
    spread = 100 * share + rng.uniform(-4, 4, len(values))
    axis.scatter(spread, values, s=12, alpha=0.5, color="C0")
axis.plot(
    [100 * share for share in shares], np.mean(scores, axis=1), "o-", color="C2", label="mean"
)
axis.set(title="Mixtures of 100 episodes", xlabel="share of the expert (%)", ylabel="D4RL score")
axis.legend(frameon=True)
plt.show()

# %% [markdown]
# *Each dot is an episode. The mean score grows with the share of the expert.*
#
# ## Export
#
# `rlds.sources.export` writes both datasets in their original formats. This cell checks that the
# values are unchanged.

# %%
rlds.sources.export(
    builders["Minari, expert"].data_path, "minari", folder / "minari" / "pole" / "again-v0"
)
again, original = minari.load_dataset("pole/again-v0"), minari.load_dataset("pole/expert-v0")
np.testing.assert_array_equal(again[7].observations, original[7].observations)

rlds.sources.export(builders["D4RL, random"].data_path, "d4rl", folder / "again.hdf5")
with h5py.File(folder / "again.hdf5") as file:
    for name, values in rows.items():
        np.testing.assert_array_equal(file[name][:], np.array(values, file[name].dtype))
print("both are the same")
