# %% [markdown]
# # Patterns: selecting the steps of an example
#
# A pattern defines the steps of a training example: "the last two observations and the reward
# between them", "every third step", "the last step of an episode". It is applied at each step of
# each episode. The same pattern works offline on recorded data and online while an agent acts.
# Names and results are those of Reverb. Reverb need not be installed.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import envlogger
import rlds
import tfds_builders
from envlogger.testing.catch_env import Catch
from rlds import transformations as rt
from rlds.transformations import structured_writer

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])
plt.rcParams["figure.constrained_layout.use"] = True
folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## The data
#
# In Catch, a paddle at the bottom of a board moves left or right to catch a falling ball. A
# random agent plays 300 episodes. The figure shows one of them.

# %%
rng = np.random.default_rng(0)
with envlogger.EnvLogger(Catch(), data_directory=folder / "logs") as env:
    for _ in range(300):
        timestep = env.reset()
        while not timestep.last():
            timestep = env.step(int(rng.integers(3)))

builder = tfds_builders.build_from_logs(folder / "logs", name="catch", data_dir=folder / "data")


def with_number(steps):
    """Numbers the steps, to see later which of them a pattern took."""
    return {**steps, "number": tf.range(tf.shape(steps[rlds.ACTION])[0])}


episodes = rt.apply_nested_steps(rlds.tfds.load(builder), with_number)

# %%
boards = next(iter(episodes))[rlds.STEPS][rlds.OBSERVATION].numpy()
figure, axes = plt.subplots(1, 10, figsize=(11, 2.5))
for column, (axis, board) in enumerate(zip(axes, boards, strict=True)):
    shown = board.copy()
    shown[-1] *= 0.6
    axis.imshow(shown, cmap="Blues", vmin=0, vmax=1.1)
    axis.set(title=column, xticks=[], yticks=[])
figure.supxlabel("step", fontsize=10)
plt.show()

# %% [markdown]
# *One episode: the ball falls one row in each step. The paddle is in the last row.*
#
# ## Pattern functions
#
# A pattern is a function of a *reference step*. Index each field like the list of its values up
# to now: `[-1]` is the newest, `[-2]` the one before, `[-3:]` the last three. This pattern makes
# transitions (SARS). It takes action and reward at `[-2]`, so it never uses the placeholders of
# the last step.


# %%
def transition(step):
    return {
        "observation": step[rlds.OBSERVATION][-2],
        "action": step[rlds.ACTION][-2],
        "reward": step[rlds.REWARD][-2],
        "discount": step[rlds.DISCOUNT][-2],
        "next_observation": step[rlds.OBSERVATION][-1],
    }


spec = rt.step_spec(episodes)
reference = structured_writer.create_reference_step(spec)
print(reference[rlds.ACTION][-3:])

transitions = rt.pattern_map_from_transform(episodes, transition)
{name: field.shape for name, field in transitions.element_spec.items()}

# %% [markdown]
# ## Conditions
#
# A pattern makes an output at the steps where all its conditions hold. To show the effect of
# conditions, this pattern collects the numbers of the steps.

# %%
Condition = structured_writer.Condition
data = Condition.data(spec)


def last_three(step):
    return step["number"][-3:]


def every_second(step):
    return step["number"][-5::2]


examples = {
    "the last three": (last_three, []),
    "only in the first 6 steps": (last_three, [Condition.step_index() < 6]),
    "not at terminal steps": (last_three, [data[rlds.IS_TERMINAL] == 0]),
    "at every third step": (last_three, [Condition.step_index() % 3 == 2]),
    "at the end": (last_three, [Condition.is_end_episode()]),
    "every second of five": (every_second, []),
}

figure, axes = plt.subplots(1, 6, figsize=(13, 3.4), sharey=True)
for axis, (title, (pattern, conditions)) in zip(axes, examples.items(), strict=True):
    outputs = rt.pattern_map_from_transform(episodes.take(1), pattern, conditions)
    for row, steps in enumerate(outputs.as_numpy_iterator()):
        axis.plot(steps, [row] * len(steps), "-", color="0.8", lw=1)
        axis.scatter(steps[:-1], [row] * (len(steps) - 1), s=34, color="C0", marker="s")
        axis.scatter(steps[-1], row, s=34, color="C2", marker="s")
    axis.set(title=title, xlabel="step", xticks=range(0, 10, 3), xlim=(-0.6, 9.6))
    axis.title.set_fontsize(10)
axes[0].set(ylabel="output", yticks=range(8), ylim=(7.7, -0.7))
plt.show()

# %% [markdown]
# *Each row is an output with its steps. The newest step is red: there the output was created. The
# first output comes when the episode has enough steps.*
#
# ## Several patterns
#
# A config contains a pattern and its conditions. Several configs can make outputs of different
# lengths from the same steps: here all pairs, and the last step alone, as for bootstrapping.

# %%
pairs = structured_writer.create_config(
    structured_writer.pattern_from_transform(spec, lambda step: step["number"][-2:]), table="any"
)
last = structured_writer.create_config(
    structured_writer.pattern_from_transform(spec, lambda step: step["number"][-1:]),
    table="any",
    conditions=[Condition.is_end_episode()],
)
[output.tolist() for output in rt.pattern_map(episodes.take(1), [pairs, last]).as_numpy_iterator()]

# %% [markdown]
# ## Offline learning
#
# This cell learns from batches of the transitions of all 300 episodes. A table contains the value
# of each action. It has 225 states: 45 positions of the ball times 5 of the paddle.

# %%
batches = rt.pattern_map_from_transform(episodes, transition, batch_size=10_000)
recorded = next(batches.as_numpy_iterator())


def state(board):
    """The number of a board."""
    ball = board[..., :-1, :].reshape(*board.shape[:-2], 45).argmax(-1)
    return ball * 5 + board[..., -1, :].argmax(-1)


def update(values, batch):
    """Moves the values a bit to what the transitions say."""
    future = values[state(batch["next_observation"])].max(-1)
    target = batch["reward"] + 0.97 * batch["discount"] * future
    entry = state(batch["observation"]), batch["action"]
    values[entry] += 0.3 * (target - values[entry])


def score(values, balls=50):
    """The share of balls that are caught."""
    env, caught = Catch(seed=7), 0
    for _ in range(balls):
        timestep = env.reset()
        while not timestep.last():
            timestep = env.step(int(values[state(timestep.observation)].argmax()))
        caught += timestep.reward > 0
    return caught / balls


offline, offline_scores = np.zeros((225, 3)), []
for count in range(301):
    if count % 10 == 0:
        offline_scores.append(score(offline))
    chosen = rng.integers(len(recorded["reward"]), size=128)
    update(offline, {name: column[chosen] for name, column in recorded.items()})

# %% [markdown]
# ## Online learning
#
# `PatternDataset` accepts any stream of steps, with the same pattern. Here an agent that learns
# makes the steps. The outputs go into a replay buffer: a dict of arrays in which new transitions
# replace the oldest.


# %%
def play(values, env, episodes=400):
    """Plays; each step is in RLDS order, as in a dataset."""
    for _ in range(episodes):
        timestep = env.reset()
        while not timestep.last():
            explores = rng.random() < 0.1
            board = state(timestep.observation)
            action = int(rng.integers(3) if explores else values[board].argmax())
            following = env.step(action)
            yield step_of(timestep, action, following.reward, following.discount)
            timestep = following
        yield step_of(timestep, 0, 0.0, 0.0)


def step_of(timestep, action, reward, discount):
    return rlds.build_step(
        observation=timestep.observation,
        action=action,
        reward=reward,
        discount=discount,
        is_first=timestep.first(),
        is_last=timestep.last(),
        is_terminal=timestep.last(),
    )


online = rng.normal(0, 0.01, (225, 3))  # Otherwise it would begin with always the same move.
stream_spec = {name: field for name, field in spec.items() if name != "number"}
stream = tf.data.Dataset.from_generator(lambda: play(online, Catch()), output_signature=stream_spec)
config = structured_writer.create_config(
    structured_writer.pattern_from_transform(stream_spec, transition), table="any"
)
items = rt.PatternDataset(
    stream,
    [config],
    respect_episode_boundaries=True,
    is_end_of_episode=lambda step: step[rlds.IS_LAST],
    chunk_size=1,  # The player shall not be hundreds of steps ahead.
)

# %%
capacity = 1000
replay, caught = None, []
for count, item in enumerate(items.as_numpy_iterator()):
    if replay is None:
        replay = {
            name: np.zeros((capacity, *np.shape(value)), np.asarray(value).dtype)
            for name, value in item.items()
        }
    for name, value in item.items():
        replay[name][count % capacity] = value
    if item["discount"] == 0:
        caught.append(item["reward"] > 0)
    chosen = rng.integers(min(count + 1, capacity), size=32)
    update(online, {name: column[chosen] for name, column in replay.items()})

print("caught of the last 100 balls:", sum(caught[-100:]))

# %%
figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), width_ratios=[4, 4, 4])
axes[0].plot(range(0, 301, 10), np.multiply(offline_scores, 100), "o-", ms=4)
axes[0].set(title="Offline", xlabel="updates", ylabel="balls caught (%)", ylim=(0, 105))
smooth = np.convolve(caught, np.ones(40) / 40, mode="valid")
axes[1].plot(np.arange(40, len(caught) + 1), 100 * smooth, color="C2")
axes[1].set(title="Online, mean of 40 episodes", xlabel="episode", ylim=(0, 105))
axes[1].set(ylabel="balls caught (%)")

best = offline.max(-1).reshape(9, 5, 5)[7]  # By columns of ball and paddle, in row 7.
shown = axes[2].imshow(best, cmap="RdBu", vmin=-1, vmax=1)
axes[2].set(title="Value when the ball is in row 7", xlabel="column of the paddle")
axes[2].set(ylabel="column of the ball")
axes[2].grid(False)
figure.colorbar(shown, ax=axes[2])
plt.show()

# %% [markdown]
# *Left: from the recording of a random agent, the table learns to catch every ball. Middle: the
# online agent catches all balls except for its random exploration. Right: two actions are left.
# If the paddle is further away, the ball is lost (red).*
