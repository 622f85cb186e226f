# %% [markdown]
# # Imitation from demonstrations
#
# A car is too weak to drive up a hill directly. It must swing first. Drivers of different skill
# demonstrate this, and a network learns from them. You also concatenate fields of an observation,
# sum rewards up to an event, and add absorbing states.

# %%
import tempfile
from pathlib import Path

import gymnasium
import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import envlogger
import rlds
import tfds_builders
from envlogger.gymnasium_adapter import GymnasiumAdapter
from rlds import transformations as rt

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])
plt.rcParams["figure.constrained_layout.use"] = True
folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## Recording
#
# The observation of a robot is often a dict of components. Here they are position and
# velocity. `step_fn` tags an event: the car has passed the middle of the last slope. The dataset
# contains custom data of steps, such as this tag.


# %%
class InParts(gymnasium.ObservationWrapper):
    """Returns the observation as a dict of its components."""

    def __init__(self, env):
        super().__init__(env)
        low, high = env.observation_space.low, env.observation_space.high
        self.observation_space = gymnasium.spaces.Dict(
            {
                "position": gymnasium.spaces.Box(low[:1], high[:1]),
                "velocity": gymnasium.spaces.Box(low[1:], high[1:]),
            }
        )

    def observation(self, observation):
        return {"position": observation[:1], "velocity": observation[1:]}


def make_car(seed):
    car = gymnasium.make("MountainCarContinuous-v0", max_episode_steps=400)
    return GymnasiumAdapter(InParts(car), seed=seed)


def step_fn(timestep, action, env):
    return {"is_on_last_slope": bool(timestep.observation["position"][0] > 0.0)}


rng = np.random.default_rng(0)
noises = rng.uniform(0.2, 2.5, size=40)
with envlogger.EnvLogger(make_car(seed=0), data_directory=folder / "logs", step_fn=step_fn) as env:
    for noise in noises:
        timestep = env.reset()
        while not timestep.last():
            # Push in the direction of motion, more or less.
            push = np.sign(timestep.observation["velocity"]) + noise * rng.normal(size=1)
            timestep = env.step(np.clip(push, -1, 1).astype(np.float32))

builder = tfds_builders.build_from_logs(folder / "logs", name="car", data_dir=folder / "data")
episodes = rlds.tfds.load(builder)

# %% [markdown]
# ## Episode samples and observation vectors
#
# `shuffle` with a seed and `take` select the same few episodes each time. `map_nested_steps`
# changes every step: it joins the components to one vector, the input of most networks.

# %%
few = episodes.shuffle(len(episodes), seed=1).take(5)
print([episode["episode_id"].numpy().decode() for episode in few])


def joined(step):
    observation = step[rlds.OBSERVATION]
    return {
        **step,
        rlds.OBSERVATION: tf.concat([observation["position"], observation["velocity"]], axis=-1),
    }


vectors = rt.map_nested_steps(episodes, joined)
print(next(iter(vectors))[rlds.STEPS][rlds.OBSERVATION].shape)

# %% [markdown]
# ## Rewards up to an event
#
# The reward is 100 for arriving, minus the fuel of every push. How much fuel did the drivers need
# up to the last slope? This cell truncates each episode there, sums the rewards, and plots the
# fuel.


# %%
def fuel(steps):
    return -rt.sum_dataset(steps, lambda step: tf.minimum(step[rlds.REWARD], 0.0))


def compared(episode):
    steps = episode[rlds.STEPS]
    to_slope = rt.truncate_after_condition(steps, lambda step: step["is_on_last_slope"])
    return {"to the slope": fuel(to_slope), "in all": fuel(steps)}


figure, axis = plt.subplots(figsize=(7, 3.8))
used = list(episodes.map(compared).as_numpy_iterator())
order = [int(episode["episode_id"]) for episode in episodes.as_numpy_iterator()]
for name, marker in [("in all", "o"), ("to the slope", "s")]:
    axis.scatter(noises[order], [e[name] for e in used], marker=marker, label=name, alpha=0.8)
axis.set(title="Fuel of 40 drivers", xlabel="noise of the driver", ylabel="fuel", ylim=0)
axis.legend(frameon=True)
plt.show()

# %% [markdown]
# *Drivers with more noise use more fuel. Most fuel is used before the last slope.*
#
# ## Custom transitions
#
# `transitions` returns the usual fields of a transition. `map_nested_steps` selects and renames
# them.


# %%
def as_tuple(step):
    return {
        "state": step[rlds.OBSERVATION],
        "action": step[rlds.ACTION],
        "next_state": step["next_observation"],
        "goes_on": step[rlds.DISCOUNT],
    }


sars = rt.map_nested_steps(rt.transitions(vectors), as_tuple)
{name: column.shape for name, column in next(iter(sars))[rlds.STEPS].items()}

# %% [markdown]
# ## Absorbing states
#
# Some algorithms learn a reward from demonstrations. They need data about the time after the
# terminal state: an *absorbing* state that leads to itself. A flag in the observation
# distinguishes it from other states.

# %%
absorbing = rt.add_absorbing_states(vectors)
before, after = (
    next(iter(dataset))[rlds.STEPS][rlds.OBSERVATION].numpy()[-7:]
    for dataset in (vectors, absorbing)
)

figure, axes = plt.subplots(1, 2, figsize=(11, 3), sharey=True)
for axis, observations, title in zip(
    axes, (before, after), ("As recorded", "With absorbing states"), strict=True
):
    shown = np.zeros((3, len(observations)))
    shown[: observations.shape[1]] = observations.T
    axis.imshow(shown, cmap="Blues", vmin=0, vmax=1.3, aspect="auto")
    for (row, column), value in np.ndenumerate(shown):
        if row < observations.shape[1]:
            axis.text(column, row, f"{value:.2f}", ha="center", va="center")
    axis.set(title=title, xlabel="the last steps of an episode")
    axis.set_xticks(range(len(observations)), range(-len(observations), 0))
    axis.set_yticks(range(3), ["position", "velocity", "mark"])
    axis.grid(False)
plt.show()

# %% [markdown]
# *The car arrives at 0.45. With absorbing states, the last two observations are zeros with a
# flag, and no step is terminal.*
#
# ## Behaviour cloning
#
# A small network predicts the push of the driver. It trains on shuffled batches of the good
# demonstrations for many epochs, and drives at intervals to measure its return.

# %%
best = vectors.filter(rt.has_return(minimum=88.0))
print(len(list(best)), "good demonstrations")

keras.utils.set_random_seed(0)
model = keras.Sequential(
    [
        keras.layers.Input((2,)),
        keras.layers.Rescaling([1.0, 20.0]),  # Velocities are small.
        keras.layers.Dense(32, activation="tanh"),
        keras.layers.Dense(32, activation="tanh"),
        keras.layers.Dense(1, activation="tanh"),
    ]
)
model.compile(keras.optimizers.Adam(0.0005), "mse")
batches = rt.shuffle_steps(rt.transitions(best).repeat(), batch_size=128, seed=0)
pairs = iter(batches.map(lambda batch: (batch[rlds.OBSERVATION], batch[rlds.ACTION])))


def policy():
    """The network as it is now, in NumPy, which is faster for single steps."""
    weights = [layer.get_weights() for layer in model.layers[1:]]

    def act(states):
        activations = states * np.float32([1.0, 20.0])
        for kernel, bias in weights:
            activations = np.tanh(activations @ kernel + bias)
        return activations

    return act


def drive(act, seed):
    """Plays one episode; returns its return."""
    env = make_car(seed)
    timestep, total = env.reset(), 0.0
    while not timestep.last():
        state = np.concatenate([timestep.observation[name] for name in ("position", "velocity")])
        timestep = env.step(act(state).astype(np.float32))
        total += timestep.reward
    return total


# %%
updates, returns = [], []
for update in range(121):
    if update % 10 == 0:
        updates.append(update)
        returns.append([drive(policy(), seed) for seed in range(100, 110)])
    model.train_on_batch(*next(pairs))

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.2), width_ratios=[4, 5])
left.plot(updates, returns, "o", color="C0", ms=4, alpha=0.5)
left.plot(updates, np.mean(returns, axis=1), color="C0", lw=2, label="clone, mean")
teacher = np.mean([float(rt.episode_return(episode)) for episode in best])
left.axhline(teacher, color="0.4", ls="--", label="demonstrations, mean")
left.set(title="Learning curve", xlabel="updates", ylabel="return")
left.legend(loc="lower right", frameon=True)

positions, velocities = np.meshgrid(np.linspace(-1.2, 0.6, 120), np.linspace(-0.07, 0.07, 120))
states = np.stack([positions, velocities], axis=-1)
levels = np.linspace(-1, 1, 11)
field = right.contourf(positions, velocities, policy()(states)[..., 0], levels, cmap="RdBu_r")
for episode in best.take(3):
    right.plot(*episode[rlds.STEPS][rlds.OBSERVATION].numpy().T, color="k", lw=1.2)
right.axvline(0.45, color="C1", lw=3, label="the goal")
right.set(title="What the clone does", xlabel="position", ylabel="velocity")
right.legend(loc="lower right", frameon=True)
figure.colorbar(field, ax=right, label="push")
plt.show()

# %% [markdown]
# *Left: each dot is an episode from another start. At first the car does not arrive; later it
# needs less fuel than the noisy drivers. Right: the clone pushes to the right (red) if the car
# moves to the right, and to the left (blue) if it moves to the left. Three demonstrations (black)
# spiral from the valley to the goal.*
