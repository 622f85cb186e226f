# %% [markdown]
# # From Minari and D4RL, and back
#
# Other libraries store episodes in other forms. You record a dataset with Minari, write a file in
# the form of D4RL, and open both like a recording of your own. Then you turn them into RLDS
# datasets, mix them, and export them again.

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
# A cart keeps a pole upright, or does not: a controller is the expert, sometimes with a trembling
# hand, and random pushes are the beginner. MuJoCo simulates them.


# %%
def expert(observation, rng, noise):
    return np.clip(observation @ [1.0, 12.0, 1.5, 2.0] + noise * rng.normal(size=1), -3, 3)


def beginner(observation, rng):
    return rng.uniform(-0.6, 0.6, size=1)


def make_env():
    return gymnasium.make("InvertedPendulum-v5", max_episode_steps=200)


# %% [markdown]
# ## Minari records
#
# `DataCollector` is Minari's recorder. The dataset lands in a folder of HDF5 files.

# %%
rng = np.random.default_rng(0)
collector = minari.DataCollector(make_env(), record_infos=False)
for number in range(30):
    observation, _ = collector.reset(seed=number)
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
# ## A file in the form of D4RL
#
# D4RL has one long table of transitions for all episodes. Where an episode ends, `terminals` or
# `timeouts` is true.

# %%
rows = {name: [] for name in ("observations", "actions", "rewards", "terminals", "timeouts")}
rows["next_observations"] = []
env = make_env()
for number in range(80):
    observation, _ = env.reset(seed=1000 + number)
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
# ## Open both
#
# `rlds.sources.open` finds out what a path is. Episodes of every format have the same fields,
# with the same meaning.

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
for number in range(6):
    observations = from_d4rl.columns(number, ["observation"])["observation"]
    place = begin + np.arange(len(observations))
    below.plot(place, np.degrees(observations[:, 1]), color=f"C{number}", lw=1.5)
    below.plot(place[-1], np.degrees(observations[-1, 1]), "o", color=f"C{number}")
    begin += len(observations)
below.set(title="The episodes, with their final observations", xlabel="step")
below.set(ylabel="angle (degrees)")
plt.show()

# %% [markdown]
# *Above: the first rows of the file, with a line where a flag is set. Below: the episodes that
# come out of it. Each has one observation more than it has rows, the one after its last action (a
# dot). In the file it is in `next_observations`.*
#
# ## Convert
#
# One call for each. The result is a dataset that TensorFlow Datasets loads anywhere, and that
# says where it came from.

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
# ## Compare
#
# From here on nothing depends on where the data came from.


# %%
def common(episode):
    """What both datasets have, in the same dtypes."""
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
for number, values in enumerate(returns):
    spread = number + rng.uniform(-0.15, 0.15, len(values))
    axes[2].scatter(spread, values, s=22, alpha=0.7, color=("C0", "C2")[number])
axes[2].set(title="Returns", ylabel="return", xlim=(-0.5, 1.5))
axes[2].set_xticks([0, 1], list(datasets))
plt.show()

# %% [markdown]
# *Left and middle: how often each state was visited. The expert stays where the pole is upright,
# the beginner sees it fall. Right: the return of each episode.*
#
# ## Scores and mixtures
#
# D4RL states results between 0, a random policy, and 100, an expert. Mix both datasets by weight,
# and see what quality you get.

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
# *Each dot is an episode. The more of them are the expert's, the higher is the mean score.*
#
# ## And back
#
# `rlds.sources.export` writes the formats that the data came from. What comes back is what went in.

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
