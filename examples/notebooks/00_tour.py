# %% [markdown]
# # Tour: record, inspect, convert, train
#
# This notebook takes three minutes from an environment to a trained policy. You record CartPole,
# inspect the recording, convert it to a dataset, and train a small network to balance the pole.
# The notebook generates all data and downloads nothing.

# %%
import tempfile
from pathlib import Path

import gymnasium
import keras
import matplotlib.pyplot as plt
import numpy as np

import envlogger
import rlds
import rlds_tools
import tfds_builders
from envlogger.callbacks import EpisodeStatistics
from envlogger.gymnasium_adapter import GymnasiumAdapter

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])
plt.rcParams["figure.constrained_layout.use"] = True
keras.utils.set_random_seed(0)
folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## Record
#
# Wrap the environment in an `EnvLogger`, and use it as before. A simple rule balances the pole.
# In some episodes, a share of the actions is random.


# %%
def balance(observation):
    """Pushes the cart (0: left, 1: right) to where the pole falls."""
    position, velocity, angle, turning = observation
    return int(angle + 0.3 * turning + 0.05 * position + 0.1 * velocity > 0)


def play(env, policy, disturbance=0.0, rng=None):
    """Plays one episode; returns the sum of its rewards."""
    timestep, total = env.reset(), 0.0
    while not timestep.last():
        disturbed = disturbance > 0 and rng.random() < disturbance
        action = int(rng.integers(2)) if disturbed else policy(timestep.observation)
        timestep = env.step(action)
        total += timestep.reward
    return total


# %%
rng = np.random.default_rng(0)
disturbances = rng.uniform(0.0, 0.9, size=60)

with envlogger.EnvLogger(
    GymnasiumAdapter(gymnasium.make("CartPole-v1"), seed=0),
    data_directory=folder / "logs",
    episode_fn=EpisodeStatistics(),  # Stores return and length with each episode.
    metadata={"agent_id": "a rule, disturbed"},
) as env:
    for disturbance in disturbances:
        play(env, balance, disturbance, rng)

# %% [markdown]
# ## Inspect
#
# `rlds_tools.inspect` shows the format, the fields and the size of a dataset. The command is
# `rlds inspect FOLDER`.

# %%
rlds_tools.inspect(folder / "logs")

# %% [markdown]
# `rlds.sources.open` reads a recording, or a dataset of any supported format, as NumPy arrays. It
# does not load TensorFlow. The figure plots the angle of the pole and the returns.

# %%
episodes = rlds.sources.open(folder / "logs")
returns = np.array([episode.metadata["return"] for episode in episodes])
order = np.argsort(returns)
chosen = {"shortest": order[0], "median": order[len(order) // 2], "longest": order[-1]}

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8), width_ratios=[3, 2])
for (label, index), color in zip(chosen.items(), ["C2", "C0", "C1"], strict=True):
    angle = np.degrees(episodes.columns(index, ["observation"])["observation"][:, 2])
    left.plot(angle, color=color, lw=1.2, label=f"{label}: {len(angle) - 1} steps")
    left.plot(len(angle) - 1, angle[-1], "o", color=color)
for limit in (-12, 12):
    left.axhline(limit, color="0.4", ls="--", lw=1)
left.set(title="Three episodes", xlabel="step", ylabel="angle of the pole (degrees)")
left.legend(loc="lower right", frameon=True)
right.scatter(100 * disturbances, returns, s=28, alpha=0.8, edgecolor="white", lw=0.5)
right.set(
    title="All 60 episodes", xlabel="random actions (%)", ylabel="return of the episode", ylim=0
)
plt.show()

# %% [markdown]
# *Left: an episode ends if the pole leaves the dashed lines at 12 degrees, or after 500 steps.
# Right: with more random actions, the pole falls earlier.*
#
# ## Convert
#
# `build_from_logs` converts the recording to an RLDS dataset. It derives the features from the
# specs of the environment. TensorFlow Datasets can load the result on any machine.

# %%
builder = tfds_builders.build_from_logs(folder / "logs", name="cart_pole", data_dir=folder / "data")
builder.info.splits

# %% [markdown]
# `rlds_tools.report` reads the whole dataset and makes one HTML page: distributions, curves of
# some episodes, and possible faults. `save` writes the page to a file. The command is `rlds
# report`.

# %%
rlds_tools.report(builder.data_dir)

# %% [markdown]
# ## Train
#
# Select the long episodes, convert their steps to transitions, and shuffle the transitions of all
# episodes.

# %%
rt = rlds.transformations
dataset = rlds.tfds.load(builder)
good = dataset.filter(rt.has_return(minimum=400))
batches = rt.shuffle_steps(rt.transitions(good), batch_size=128, seed=0)
examples = batches.map(lambda batch: (batch[rlds.OBSERVATION], batch[rlds.ACTION])).cache()

num_batches = len(list(examples))
print(len(list(good)), "episodes,", num_batches, "batches")

# %%
model = keras.Sequential(
    [
        keras.layers.Input((4,)),
        keras.layers.Dense(32, activation="tanh"),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
history = model.fit(
    examples.repeat(), steps_per_epoch=num_batches, epochs=8, verbose=0, shuffle=False
).history

# %% [markdown]
# The network now controls the pole. Compare it with the rule that it imitates. The network is
# small, so NumPy computes a single step faster than Keras.

# %%
(w1, b1), (w2, b2) = (layer.get_weights() for layer in model.layers)


def chance_of_right(observation):
    """Returns the probability that the teacher pushes to the right, by the network."""
    return 1 / (1 + np.exp(-(np.tanh(observation @ w1 + b1) @ w2 + b2)[..., 0]))


test_env = GymnasiumAdapter(gymnasium.make("CartPole-v1"), seed=1000)
of_network = [play(test_env, lambda o: int(chance_of_right(o) > 0.5)) for _ in range(20)]
of_chance = [play(test_env, balance, 1.0, rng) for _ in range(20)]

# %%
figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), width_ratios=[3, 4, 3])
axes[0].plot(range(1, 9), history["accuracy"], "o-")
axes[0].set(title="Learning", xlabel="epoch", ylabel="share of actions predicted")

angles, speeds = np.meshgrid(np.linspace(-0.21, 0.21, 100), np.linspace(-2, 2, 100))
grid = np.stack([0 * angles, 0 * angles, angles, speeds], axis=-1)
levels = np.linspace(0, 1, 11)
shown = axes[1].contourf(np.degrees(angles), speeds, chance_of_right(grid), levels, cmap="RdBu_r")
axes[1].plot([-12, 12], -np.radians([-12, 12]) / 0.3, "k--", lw=1.2, label="the teacher's border")
axes[1].set(title="What it learned", xlabel="angle (degrees)", ylabel="angular velocity (rad/s)")
axes[1].legend(loc="upper right", frameon=True)
figure.colorbar(shown, ax=axes[1], label="chance of a push to the right")

for column, results in enumerate([of_chance, of_network]):
    spread = column + rng.uniform(-0.15, 0.15, len(results))
    axes[2].scatter(spread, results, s=28, alpha=0.8, color=["0.5", "C0"][column])
axes[2].set(title="Playing", ylabel="return of the episode", xlim=(-0.5, 1.5), ylim=(0, 520))
axes[2].set_xticks([0, 1], ["random actions", "the network"])
plt.show()

# %% [markdown]
# *Left: the network predicts five of six actions; the rest is random. Middle: for a cart at
# rest in the middle, the network switches from left (blue) to right (red) at the border of the
# rule. Right: the network balances the pole, random actions do not.*
#
# ## Next notebooks
#
# * [Record](01_record.ipynb): metadata, crash recovery, recording into a dataset.
# * [Transformations](02_transformations.ipynb): filters, windows, transitions, statistics.
# * [Fast input](04_fast_input.ipynb): ten ways to read a dataset, and their speed.
