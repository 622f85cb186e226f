# %% [markdown]
# # Behaviour cloning from few demonstrations
#
# Section 7.1 of the [RLDS paper](https://arxiv.org/abs/2111.02767) prepares episodes for an
# algorithm in three steps: choose K episodes, concatenate the fields of the observation, make
# transitions. This notebook trains behaviour cloning on the result, and plots the return as a
# function of K.

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
# ## Recording 25 demonstrations
#
# A pendulum hangs from a motor that is too weak to lift it at once. The demonstrator swings it up
# and holds it there; 1 action out of 10 is random. As in the datasets of the paper, the
# observation has several fields.


# %%
def make_pendulum():
    pendulum = gymnasium.make("Pendulum-v1", disable_env_checker=True)
    low, high = pendulum.observation_space.low, pendulum.observation_space.high
    slices = {"direction": slice(0, 2), "velocity": slice(2, 3)}
    return gymnasium.wrappers.TransformObservation(
        pendulum,
        lambda observation: {name: observation[it] for name, it in slices.items()},
        gymnasium.spaces.Dict(
            {name: gymnasium.spaces.Box(low[it], high[it]) for name, it in slices.items()}
        ),
    )


def swing_up(observation):
    (cosine, sine), (velocity,) = observation["direction"], observation["velocity"]
    if cosine > 0.7 and abs(velocity) < 5:
        torque = -15 * sine - 3 * velocity
    else:  # Push with the motion, until the energy is enough.
        torque = (5 - velocity**2 / 6 - 5 * cosine) * velocity
    return np.clip([torque], -2, 2).astype(np.float32)


rng = np.random.default_rng(0)
returns = []
environment = GymnasiumAdapter(make_pendulum(), seed=0)
with envlogger.EnvLogger(environment, data_directory=folder / "logs") as env:
    for _ in range(25):
        timestep, total = env.reset(), 0.0
        while not timestep.last():
            action = swing_up(timestep.observation)
            if rng.random() < 0.1:
                action = rng.uniform(-2, 2, 1).astype(np.float32)
            timestep = env.step(action)
            total += timestep.reward
        returns.append(total)

builder = tfds_builders.build_from_logs(folder / "logs", name="pendulum", data_dir=folder / "data")
episodes = rlds.tfds.load(builder)
print(len(episodes), "episodes, mean return", round(np.mean(returns)))

# %% [markdown]
# ## Choosing K episodes
#
# `reshuffle_each_iteration=False` chooses the same episodes in each epoch. This cell prints the
# chosen episodes for some K.


# %%
def choose(count, seed):
    shuffled = episodes.shuffle(len(episodes), seed=seed, reshuffle_each_iteration=False)
    return shuffled.take(count)


for count in (1, 2, 5):
    print(count, [e["episode_id"].numpy().decode() for e in choose(count, seed=42)])

# %% [markdown]
# ## Observation vectors
#
# This cell concatenates the fields of the observation. It also normalizes the vectors, because
# networks learn better from inputs of similar scale.


# %%
def joined(step):
    observation = step[rlds.OBSERVATION]
    return {
        **step,
        rlds.OBSERVATION: tf.concat([observation["direction"], observation["velocity"]], axis=-1),
    }


vectors = rt.map_nested_steps(episodes, joined)
mean, std = rt.mean_and_std(vectors, rt.sar_fields_mask)
print("mean", mean["observation"].round(2), "standard deviation", std["observation"].round(2))


def normalized(observation):
    return tf.cast((observation - mean["observation"]) / std["observation"], tf.float32)


def prepared(step):
    step = joined(step)
    return {**step, rlds.OBSERVATION: normalized(step[rlds.OBSERVATION])}


# %% [markdown]
# ## Transitions
#
# The paper makes windows of two steps. `transitions` does the same, and excludes the last step,
# which has no action. `discount` is 0 only if the next state is terminal. Here it is 1, because
# the episodes were truncated.


# %%
def transitions_of(chosen):
    steps = rt.transitions(rt.map_nested_steps(chosen, prepared))
    return steps.flat_map(lambda episode: tf.data.Dataset.from_tensor_slices(episode[rlds.STEPS]))


first = next(iter(transitions_of(choose(1, seed=42))))
for name in ("observation", "action", "reward", "discount", "next_observation"):
    print(f"{name:17}", first[name].numpy())

# %% [markdown]
# ## Training and evaluation
#
# The network learns to predict the action of an observation. Then the clone acts in 20 episodes
# at once.


# %%
def clone(count, seed):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.layers.Input((3,)),
            keras.layers.Dense(64, activation="tanh"),
            keras.layers.Dense(64, activation="tanh"),
            keras.layers.Dense(1),
        ]
    )
    model.compile("adam", "mse", steps_per_execution=50, jit_compile=False)
    pairs = transitions_of(choose(count, seed)).map(lambda t: (t["observation"], t["action"] / 2))
    batches = pairs.cache().shuffle(200 * count, seed=seed).repeat().batch(64)
    model.fit(batches, steps_per_epoch=1500, shuffle=False, verbose=0)
    return model


arena = gymnasium.make_vec("Pendulum-v1", num_envs=20, vectorization_mode="sync")


def play(act):
    observations, _ = arena.reset(seed=1000)
    total = np.zeros(20)
    for _ in range(200):
        observations, rewards, *_ = arena.step(act(observations))
        total += rewards
    return total.mean()


def cloned(model):
    call = tf.function(model)

    def act(observations):
        return np.clip(2 * call(normalized(observations)).numpy(), -2, 2)

    return act


counts = [1, 2, 5, 25]
results = {count: [play(cloned(clone(count, seed))) for seed in range(3)] for count in counts}
at_random = play(lambda observations: rng.uniform(-2, 2, (20, 1)))
for count, values in results.items():
    print(f"{count:2} demonstrations:", np.round(values))
print("random actions:", round(at_random))

# %% [markdown]
# Expected mean returns: more than -400 with 25 demonstrations, and at least 300 less with one.

# %%
few, many = np.mean(results[1]), np.mean(results[25])
assert many > -400, many
assert many > few + 300, (few, many)

figure, axis = plt.subplots(figsize=(7, 3.8))
for count, values in results.items():
    axis.plot([count] * len(values), values, "o", color="C0", alpha=0.5)
axis.plot(counts, [np.mean(values) for values in results.values()], color="C0", label="clones")
axis.axhline(np.mean(returns), color="C1", ls="--", label="demonstrator")
axis.axhline(at_random, color="0.5", ls=":", label="random actions")
axis.set(title="Behaviour cloning", xlabel="demonstrations", ylabel="return", xscale="log")
axis.set_xticks(counts, counts)
axis.minorticks_off()
axis.legend(frameon=True)
plt.show()

# %% [markdown]
# *One episode shows only one way up. A clone that leaves this way has no data there. Some
# episodes contain more states than most; one of these is almost enough.*
#
# The script `examples/imitation_from_few_demonstrations.py` does the same with `rlds.feeds`,
# without TensorFlow.
