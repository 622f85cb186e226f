# %% [markdown]
# # Fast input: ten ways to read a dataset
#
# The same dataset can be read in many ways, and a slow way spends most of its time on other work.
# This notebook computes the sum of all rewards in ten ways, and measures each. The fastest reads
# ten to a hundred times more steps per second.

# %%
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

import rlds
import tfds_files
from rlds import transformations as rt

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])
plt.rcParams["figure.constrained_layout.use"] = True
folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## The data
#
# An `EpisodeWriter` writes whole episodes as arrays, one for each field.

# %%
rng = np.random.default_rng(0)


def make_episode(index, length=100):
    step = np.arange(length)
    return {
        "steps": {
            "observation": rng.normal(size=(length, 17)).astype(np.float32),
            "action": rng.normal(size=(length, 6)).astype(np.float32),
            "reward": np.where(step < length - 1, rng.normal(1.0, 0.5, length), 0.0).astype("f4"),
            "is_first": step == 0,
            "is_last": step == length - 1,
            "is_terminal": step == length - 1,
        },
        "episode_id": str(index),
    }


config = rlds.tfds.generate_config_from_spec(make_episode(0), name="numbers")
with rlds.tfds.EpisodeWriter(folder, config, tensor_encoding="none") as writer:
    for index in range(2000):
        writer.add_episode(make_episode(index))

# %% [markdown]
# ## Number of episodes and steps
#
# The metadata contains the number of episodes. Counting steps takes one pass over one small
# field.

# %%
builder = tfds.builder_from_directory(folder)
num_episodes = builder.info.splits["train"].num_examples
flags = rlds.tfds.load(folder, fields=["is_last"])
num_steps = sum(len(episode[rlds.STEPS][rlds.IS_LAST]) for episode in flags)
print(num_episodes, "episodes,", num_steps, "steps")

# %% [markdown]
# ## Ten readers
#
# First the nested layout of TFDS: the steps of an episode are a dataset. Python loops over it, or
# `reduce` stays inside TensorFlow, with and without batches. Each function takes a split, because
# the slow ones read only some of the data.

# %%
zero = np.float32(0)


def nested(split):
    return builder.as_dataset(split=split)


def python_loops(split):
    return sum(float(step["reward"]) for e in nested(split) for step in e["steps"])


def loops_with_prefetch(split):
    fetched = nested(split).map(lambda e: {"steps": e["steps"].prefetch(100)}).prefetch(10)
    return sum(float(step["reward"]) for e in fetched for step in e["steps"])


def nested_reduce(split):
    def add_episode(total, episode):
        return total + episode["steps"].reduce(zero, lambda sum, step: sum + step["reward"])

    return nested(split).reduce(zero, add_episode)


def flat_reduce(split):
    steps = nested(split).flat_map(lambda episode: episode["steps"])
    return steps.reduce(zero, lambda total, step: total + step["reward"])


def reduce_in_batches(split):
    batches = nested(split).flat_map(lambda episode: episode["steps"].batch(50))
    return batches.reduce(zero, lambda total, batch: total + tf.reduce_sum(batch["reward"]))


def sum_nested_steps(split):
    return rt.sum_nested_steps(nested(split), lambda step: step["reward"])


# %% [markdown]
# Then the batched layout of `rlds.tfds.load`: the steps of an episode are arrays. Only fields
# that you name are parsed.


# %%
def arrays_loop(split):
    episodes = rlds.tfds.load(folder, split)
    return sum(float(tf.reduce_sum(episode["steps"]["reward"])) for episode in episodes)


def arrays_reduce(split, fields=None):
    episodes = rlds.tfds.load(folder, split, fields=fields)
    return episodes.reduce(zero, lambda total, e: total + tf.reduce_sum(e["steps"]["reward"]))


def arrays_of_one_field(split):
    return arrays_reduce(split, fields=["reward"])


# %% [markdown]
# Last, NumPy alone, without TensorFlow:


# %%
def numpy_columns(split):
    episodes = tfds_files.open_folder(folder)[split]
    read = (episodes.example(i, fields=["steps/reward"]) for i in range(len(episodes)))
    return sum(float(episode["steps"]["reward"].sum()) for episode in read)


# %%
def measure(function, percent):
    """Returns the result of a function for some data, and wall and processor time per step."""
    steps = num_steps * percent // 100
    begin = time.perf_counter(), time.process_time()
    result = float(function(f"train[:{percent}%]"))
    wall, processor = time.perf_counter() - begin[0], time.process_time() - begin[1]
    return result / steps, wall / steps, processor / steps


methods = {
    "Python loops": (python_loops, 2),
    "the same, with prefetch": (loops_with_prefetch, 2),
    "nested reduce": (nested_reduce, 2),
    "flat_map, reduce": (flat_reduce, 5),
    "flat_map, reduce in batches": (reduce_in_batches, 20),
    "sum_nested_steps": (sum_nested_steps, 20),
    "arrays, Python loop": (arrays_loop, 100),
    "arrays, reduce": (arrays_reduce, 100),
    "arrays of one field, reduce": (arrays_of_one_field, 100),
    "NumPy": (numpy_columns, 100),
}
results = {name: measure(*method) for name, method in methods.items()}
print(" " * 30, "mean reward   wall time   processor time of a step")
for name, (reward, wall, processor) in results.items():
    print(f"{name:30} {reward:11.3f} {1e6 * wall:8.1f} µs {1e6 * processor:8.1f} µs")

# %%
speeds = [1 / wall for _, wall, _ in results.values()]
figure, axis = plt.subplots(figsize=(9, 4.4))
bars = axis.barh(list(results), speeds, color=["C0"] * 6 + ["C1"] * 3 + ["C2"])
axis.bar_label(bars, [f"{speed:,.0f}" for speed in speeds], padding=4)
axis.set(title="The sum of all rewards", xlabel="steps per second", xscale="log")
axis.set_xlim(min(speeds) / 2, max(speeds) * 5)
axis.invert_yaxis()
axis.grid(axis="y", visible=False)
for color, label in [("C0", "steps are datasets"), ("C1", "arrays"), ("C2", "no TensorFlow")]:
    axis.barh(0, 0, color=color, label=label)
axis.legend(loc="upper right", frameon=True)
plt.show()

# %% [markdown]
# *The axis is logarithmic. Prefetching does not help if Python runs for each step. Less work per
# step is faster: batches, then whole episodes, then only the field that you need.*
#
# ## Shuffled batches
#
# Training needs batches with steps of many episodes. In the nested layout, `shuffle` moves each
# step separately. `shuffle_steps` permutes arrays. The figure compares their speeds.


# %%
def many_datasets(split):
    steps = nested(split).shuffle(200).flat_map(lambda episode: episode["steps"])
    return sum(len(batch["action"]) for batch in steps.shuffle(5000).batch(256))


def interleaved(split):
    steps = nested(split).interleave(lambda episode: episode["steps"], cycle_length=16)
    return sum(len(batch["action"]) for batch in steps.shuffle(5000).batch(256))


def shuffled_arrays(split):
    episodes = rlds.tfds.load(folder, split)
    batches = rt.shuffle_steps(episodes, batch_size=256, episode_buffer=200, step_buffer=5000)
    return sum(len(batch["action"]) for batch in batches)


methods = {
    "flat_map, shuffle, batch": (many_datasets, 20),
    "interleave, shuffle, batch": (interleaved, 20),
    "shuffle_steps": (shuffled_arrays, 100),
}
speeds = [1 / measure(*method)[1] for method in methods.values()]

figure, axis = plt.subplots(figsize=(9, 2.2))
bars = axis.barh(list(methods), speeds, color=["C0", "C0", "C1"])
axis.bar_label(bars, [f"{speed:,.0f}" for speed in speeds], padding=4)
axis.set(title="Shuffled batches of 256", xlabel="steps per second", xlim=(0, 1.2 * max(speeds)))
axis.invert_yaxis()
axis.grid(axis="y", visible=False)
plt.show()

# %% [markdown]
# *Arrays give the same kind of batches several times faster.*
#
# All functions of `rlds.transformations` accept both layouts. Begin with `rlds.tfds.load`. Use
# `layout="nested"` only for episodes that do not fit into memory.
