# %% [markdown]
# # Transformations: from episodes to training data
#
# A dataset contains episodes. Algorithms need transitions, windows or normalized numbers.
# `rlds.transformations` converts one into the other. You record a walking robot, then filter,
# truncate, shift, join and normalize its episodes.

# %%
import tempfile
from pathlib import Path

import gymnasium
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

import envlogger
import rlds
import tfds_builders
from envlogger.gymnasium_adapter import GymnasiumAdapter
from rlds import transformations as rt

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])
plt.rcParams["figure.constrained_layout.use"] = True
folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## The data
#
# A two-legged walker moves its joints at random. Most episodes end because it falls (a terminal
# state), or after 40 steps (truncated).

# %%
rng = np.random.default_rng(0)
walker = gymnasium.make("Walker2d-v5", max_episode_steps=40)
with envlogger.EnvLogger(GymnasiumAdapter(walker, seed=0), data_directory=folder / "logs") as env:
    for _ in range(60):
        strength = rng.uniform(0.1, 0.8)
        timestep = env.reset()
        while not timestep.last():
            timestep = env.step(rng.uniform(-strength, strength, 6).astype(np.float32))

builder = tfds_builders.build_from_logs(folder / "logs", name="walker", data_dir=folder / "data")

# %% [markdown]
# ## Episodes and steps
#
# TensorFlow Datasets loads a split or a slice of a split. The steps of an episode are a dataset
# inside the dataset: the *nested* layout.

# %%
half = tfds.builder_from_directory(builder.data_dir).as_dataset(split="train[:50%]")
print(len(half), "episodes; the fields of a step:")
half.element_spec[rlds.STEPS].element_spec

# %% [markdown]
# `rlds.tfds.load` returns the steps as arrays: the *batched* layout, which is much faster. All
# functions below accept both layouts and return the layout of their input. Both are
# `tf.data.Dataset`s, so `take`, `skip`, `filter`, `map` and `flat_map` work too.

# %%
episodes = rlds.tfds.load(builder)
episode = next(iter(episodes.skip(3).take(1)))
print({name: column.shape for name, column in episode[rlds.STEPS].items()})

steps = episodes.flat_map(lambda episode: rt.to_nested(episode[rlds.STEPS]))
print(sum(1 for _ in steps), "steps in all")

# %% [markdown]
# ## Returns and lengths
#
# The last step of an episode has only an observation. Its action and reward are placeholders, so
# sums exclude them.


# %%
def reward_and_effort(step):
    """The reward of a step, and how hard it pushed; nothing for the last one."""
    valid = tf.cast(~step[rlds.IS_LAST], tf.float64)
    effort = tf.reduce_sum(tf.abs(tf.cast(step[rlds.ACTION], tf.float64)))
    return {"reward": valid * step[rlds.REWARD], "effort": valid * effort}


total = rt.sum_nested_steps(episodes, reward_and_effort)
print({name: round(float(value), 1) for name, value in total.items()})

# %% [markdown]
# This cell adds the return and the length to the metadata of each episode, and plots both:

# %%
summed = episodes.map(
    lambda episode: {
        **episode,
        "return": rt.episode_return(episode),
        "length": rt.episode_length(episode[rlds.STEPS]),
        "fell": rt.final_step(episode[rlds.STEPS])[rlds.IS_TERMINAL],
    }
)
returns, lengths, fell = (
    np.array([episode[name].numpy() for episode in summed]) for name in ("return", "length", "fell")
)
rewards = np.concatenate([episode[rlds.STEPS][rlds.REWARD][:-1] for episode in episodes])

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6))
left.hist(rewards, bins=40, edgecolor="white", lw=0.5)
left.axvline(rewards.mean(), color="C2", lw=2, label=f"mean {rewards.mean():.2f}")
left.set(title="Rewards", xlabel="reward of a step", ylabel="steps")
left.legend(frameon=True)
for how, mask, color in [("fell", fell, "C0"), ("cut after 40 steps", ~fell, "C2")]:
    right.scatter(lengths[mask] - 1, returns[mask], color=color, label=how, alpha=0.8)
right.set(title="Episodes", xlabel="transitions", ylabel="return")
right.legend(frameon=True)
plt.show()

# %% [markdown]
# *Left: each step without a fall earns 1; moving backward reduces the reward. Right: longer
# episodes have larger returns. Episodes that moved forward lie above those that moved backward.*
#
# ## Filters
#
# `filter` keeps episodes, here those with a high reward per step. `apply_nested_steps` truncates
# all episodes to 20 steps.


# %%
def is_good(episode):
    steps = tf.cast(rt.episode_length(episode[rlds.STEPS]) - 1, tf.float64)
    return rt.episode_return(episode) / steps > 0.5


good = episodes.filter(is_good)
first_20 = rt.apply_nested_steps(
    episodes, lambda steps: tf.nest.map_structure(lambda column: column[:20], steps)
)
print(len(list(good)), "of", len(episodes), "episodes")
print("longest:", max(len(episode[rlds.STEPS][rlds.REWARD]) for episode in first_20), "steps")

# %% [markdown]
# ## Truncation at a condition
#
# `truncate_after_condition` keeps the steps up to the first one that satisfies a condition: here,
# the torso leans by more than 25 degrees. `set_is_last` marks the new last step. This cell also
# marks it as a terminal state, as if the walker had fallen there.


# %%
def leans(step):
    return tf.abs(step[rlds.OBSERVATION][1]) > np.radians(25)


def until_it_leans(steps):
    cut = rt.truncate_after_condition(steps, leans, set_is_last=True)
    return rt.map_steps(
        cut, lambda step: {**step, rlds.IS_TERMINAL: step[rlds.IS_TERMINAL] | leans(step)}
    )


cut = rt.apply_nested_steps(episodes, until_it_leans)

figure, axis = plt.subplots(figsize=(9, 3.8))
for index, (full, kept) in enumerate(zip(episodes.take(6), cut.take(6), strict=True)):
    angles, kept_angles = (np.degrees(e[rlds.STEPS][rlds.OBSERVATION][:, 1]) for e in (full, kept))
    axis.plot(angles, color=f"C{index}", lw=1.5, ls=":")
    axis.plot(kept_angles, color=f"C{index}", lw=2.2)
    axis.plot(len(kept_angles) - 1, kept_angles[-1], "o", color=f"C{index}")
axis.axhspan(-25, 25, color="0.5", alpha=0.12, label="within 25 degrees")
axis.set(title="Six episodes", xlabel="step", ylabel="angle of the torso (degrees)")
axis.legend(loc="lower left", frameon=True)
plt.show()

# %% [markdown]
# *Kept steps are solid, removed steps are dotted. An episode that never leaves the band is
# unchanged.*
#
# ## Padding and concatenation
#
# `zero_dataset_like` makes a step of zeros with the same fields, and `build_episode` makes an
# episode of it. `concatenate` joins steps. If one side lacks a field, such as `is_padding` here,
# its values are False or zero.

# %%
spec = half.element_spec[rlds.STEPS]
zero_step = rt.zero_dataset_like(spec)
metadata = rt.zeros_from_spec({"episode_id": tf.TensorSpec([], tf.string)})
zero_episode = rlds.build_episode(steps=zero_step, metadata=metadata)

padding = zero_step.map(lambda step: {**step, "is_padding": True})
padded = rt.apply_nested_steps(half, lambda steps: rt.concatenate(steps, padding))
[step["is_padding"].numpy() for step in next(iter(padded))[rlds.STEPS]][-3:]

# %% [markdown]
# `concat_if_terminal` appends steps only if the walker fell. A function makes the new steps from
# the last step.

# %%
absorbing = rt.apply_nested_steps(
    half, lambda steps: rt.concat_if_terminal(steps, lambda last: rt.zero_dataset_like(spec))
)
for before, after in zip(half.take(4), absorbing.take(4), strict=True):
    is_terminal = bool(rt.final_step(before[rlds.STEPS])[rlds.IS_TERMINAL])
    lengths_of_both = [int(rt.episode_length(e[rlds.STEPS])) for e in (before, after)]
    print(f"fell: {is_terminal!s:5}  steps before and after: {lengths_of_both}")

# %% [markdown]
# ## Shift and alignment
#
# A dataset stores its steps in the order *state, action, reward* (SAR). `shift_keys` moves some
# fields in time. The values of this tiny episode are their times; -1 is a placeholder.

# %%
tiny = {
    "observation": np.arange(5),
    "action": np.array([0, 1, 2, 3, -1]),
    "reward": np.array([1, 2, 3, 4, -1]),
}
late = rt.shift_keys(tiny, ["observation"], -2)

# To the order action, reward, state (ARS): a step of zeros before, then shift the observations.
zero = {name: np.array([-1]) for name in tiny}
ars = rt.shift_keys(rt.concatenate(zero, tiny), ["action", "reward"], -1)
ars = rt.map_steps(ars, lambda step: rt.add_alignment_to_step(step, rt.AlignmentType.ARS))
print("alignment:", rt.AlignmentType(int(ars["alignment"][0])))

# %%
figure, axes = plt.subplots(1, 3, figsize=(12, 2.8))
orders = {
    "as stored (SAR)": tiny,
    "observation shifted by -2": late,
    "action, reward, state (ARS)": {
        name: ars[name] for name in ("action", "reward", "observation")
    },
}
for axis, (title, columns) in zip(axes, orders.items(), strict=True):
    values = np.array([np.asarray(column) for column in columns.values()])
    axis.imshow(np.ma.masked_less(values, 0), cmap="viridis", vmin=-1, vmax=6, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        text = f"{list(columns)[row][0]}$_{value}$" if value >= 0 else "-"
        axis.text(column, row, text, ha="center", va="center", color="w" if 0 <= value < 4 else "k")
    axis.set(title=title, xlabel="step", xticks=range(values.shape[1]))
    axis.set_yticks(range(3), list(columns))
    axis.grid(False)
plt.show()

# %% [markdown]
# *Each column is a step. Left: the observation o$_0$, its action, and the reward r$_1$ that
# arrives with the next observation. Middle: each step has the observation of two steps before.
# Right: each step has an action, its reward, and the next observation. A dash is a placeholder:
# the last observation has no action, and no action leads to the first observation.*
#
# ## Windows, transitions, n-step returns
#
# `batch` makes windows. `size=2, shift=3` selects every third pair of steps:

# %%
pairs = rt.batch(tiny, size=2, shift=3, drop_remainder=True)
print(pairs["observation"].numpy().tolist())

# %% [markdown]
# With `size=2, shift=1` the windows are pairs of consecutive steps, and one more line makes SARS
# steps. `transitions` does the same, and handles placeholders and terminal states. With `n=4` it
# sums the discounted rewards of four steps.


# %%
def by_hand(steps):
    pairs = rt.batch(steps, size=2, shift=1, drop_remainder=True)
    return {
        **{name: column[:, 0] for name, column in pairs.items()},
        **{f"next_{name}": pairs[name][:, 1] for name in ("observation", "is_terminal", "is_last")},
    }


sars = rt.apply_nested_steps(episodes, by_hand)
also_sars = rt.transitions(episodes)
four_step = rt.transitions(episodes, n=4, gamma=0.9)

one, same, four = (next(iter(dataset))[rlds.STEPS] for dataset in (sars, also_sars, four_step))
np.testing.assert_array_equal(one["next_observation"], same["next_observation"])

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.4))
left.plot(one["reward"], "o-", ms=4, label="1 step")
left.plot(four["reward"], "s-", ms=4, color="C2", label="4 steps, discounted by 0.9")
left.set(title="Reward of a transition", xlabel="step", ylabel="reward")
right.plot(same["discount"], "o-", ms=4, label="1 step")
right.plot(four["discount"], "s-", ms=4, color="C2", label="4 steps, discounted by 0.9")
right.set(title="Discount of what follows", xlabel="step", ylabel="discount", ylim=(-0.05, 1.05))
left.legend(frameon=True, loc="upper right")
plt.show()

# %% [markdown]
# *Near the end of the episode, the sum has fewer steps. The discount is 0 if the transition leads
# to the fall, because no reward follows.*
#
# ## Statistics and normalization
#
# `mean_and_std` reads the data once. `sar_fields_mask` excludes the placeholders. A function of
# your own returns values and a mask:


# %%
mean, std = rt.mean_and_std(episodes, rt.sar_fields_mask)
print("mean reward", mean["reward"], "- std of the actions", np.round(std["action"], 2))


def height_when_moving(step):
    """The height of the walker where it moves forward."""
    return {"height": step[rlds.OBSERVATION][0]}, {"height": step[rlds.OBSERVATION][8] > 0.0}


moving, _ = rt.mean_and_std(episodes, height_when_moving)
print("mean height in motion", moving["height"])

# %% [markdown]
# This cell normalizes by hand, with a lower limit for small deviations, and plots the
# distributions before and after. `rt.compute_statistics` and `rt.normalize` do the same, also
# with quantiles, limits and masks.

# %%
scale = np.maximum(std["observation"], 1e-3)
normalized = rt.map_nested_steps(
    episodes,
    lambda step: {
        **step,
        rlds.OBSERVATION: (step[rlds.OBSERVATION] - mean["observation"]) / scale,
    },
)
before, after = (
    np.concatenate([episode[rlds.STEPS][rlds.OBSERVATION] for episode in dataset])
    for dataset in (episodes, normalized)
)

figure, axes = plt.subplots(2, 1, figsize=(10, 5), sharex=True)
style = {"showfliers": False, "patch_artist": True, "medianprops": {"color": "k"}}
for axis, values, title, color in zip(
    axes, (before, after), ("As recorded", "Normalized"), ("C0", "C1"), strict=True
):
    boxes = axis.boxplot(values, whis=(5, 95), **style)["boxes"]
    for index, box in enumerate(boxes):
        box.set(facecolor=color, alpha=0.5 if index < 8 else 0.9)
    axis.set(title=title, ylabel="value")
axes[1].set(xlabel="dimension of the observation (1-8: positions, 9-17: velocities)")
plt.show()

# %% [markdown]
# *Boxes contain half of the values, whiskers 90 %. Before normalization, fast joints dominate;
# afterwards all dimensions have the same scale.*
#
# [Patterns](05_patterns.ipynb) shows another way to make windows. [Imitation](03_imitation.ipynb)
# trains on such data.
