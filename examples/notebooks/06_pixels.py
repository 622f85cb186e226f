# %% [markdown]
# # Pixels: Atari frames, stacks, shuffling
#
# Five players of increasing skill play Breakout, like the checkpoints of an agent during
# training. You inspect their games, sample episodes of each player, stack frames, and measure how
# well batches are shuffled. The package `ale-py` contains the games.

# %%
import io
import tempfile
import time
from pathlib import Path

import ale_py
import gymnasium
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from IPython.display import Image, display
from PIL import Image as PillowImage

import envlogger
import rlds
import tfds_builders
from envlogger.gymnasium_adapter import GymnasiumAdapter
from rlds import transformations as rt

gymnasium.register_envs(ale_py)
plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])
plt.rcParams["figure.constrained_layout.use"] = True
folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## Recording
#
# A frame is gray, with half the width and height of the screen. The players read the positions of
# ball and paddle from the memory of the game, and follow the ball: better players more often.


# %%
class Small(gymnasium.ObservationWrapper):
    """Every second row and column of the screen, as an image with one channel."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(0, 255, (105, 80, 1), np.uint8)

    def observation(self, observation):
        return observation[::2, ::2, None]


game = gymnasium.make(
    "ALE/Breakout-v5", obs_type="grayscale", frameskip=4, repeat_action_probability=0.0
)
breakout = GymnasiumAdapter(Small(game), seed=0)
rng = np.random.default_rng(0)


def player(skill):
    """Chooses an action: 1 serves, 2 moves right, 3 moves left."""
    ram = breakout.unwrapped.ale.getRAM().astype(int)
    if ram[101] == 0:  # No ball is in the game.
        return 1
    if rng.random() > skill:
        return int(rng.integers(4))
    distance = ram[99] - ram[72] - 4
    return 0 if abs(distance) < 4 else 2 if distance > 0 else 3


skills = {f"player_{player}": 0.15 * player for player in range(1, 6)}
for name, skill in skills.items():
    with envlogger.EnvLogger(
        breakout, data_directory=folder / "logs" / name, metadata={"skill": skill}
    ) as env:
        for _ in range(6):
            timestep, length = env.reset(), 1
            while not timestep.last() and length < 300:
                timestep = env.step(player(skill))
                length += 1

# %% [markdown]
# This cell converts each directory to a split. The dataset stores the frames losslessly as PNG.

# %%
builder = tfds_builders.build_from_logs(
    {name: folder / "logs" / name for name in skills}, name="breakout", data_dir=folder / "data"
)
size = sum(file.stat().st_size for file in Path(builder.data_dir).iterdir())
everything = "+".join(skills)
flags = rlds.tfds.load(builder, everything, fields=["reward"])
num_steps = sum(len(episode[rlds.STEPS][rlds.REWARD]) for episode in flags)
print(f"{num_steps} frames in {size / 1e6:.1f} MB: {size / num_steps:.0f} bytes each")

# %% [markdown]
# ## Returns and frames
#
# The figure shows the return of each game, and frames of a good player.

# %%
returns = {
    name: [float(rt.episode_return(e)) for e in rlds.tfds.load(builder, name, fields=["reward"])]
    for name in skills
}
good = next(iter(rlds.tfds.load(builder, "player_5")))[rlds.STEPS]
frames = good[rlds.OBSERVATION].numpy()

figure = plt.figure(figsize=(12, 4))
left, right = figure.subfigures(1, 2, width_ratios=[2, 5])
axis = left.subplots()
for index, values in enumerate(returns.values(), 1):
    axis.scatter(index + rng.uniform(-0.1, 0.1, len(values)), values, alpha=0.7, s=25)
axis.set(title="Returns", xlabel="player", ylabel="return", xticks=range(1, 6))
for index, axis in enumerate(right.subplots(2, 6).flat):
    step = index * (len(frames) - 1) // 11
    axis.imshow(frames[step, :, :, 0], cmap="gray")
    axis.set(xticks=[], yticks=[])
    axis.set_title(f"step {step}", fontsize=9)
plt.show()

# %% [markdown]
# *Left: better players have larger returns. Right: twelve frames of one game, from left to
# right.*
#
# The next figure is the game as an animation:

# %%
pictures = [PillowImage.fromarray(frame[:, :, 0]).resize((240, 315), 0) for frame in frames[:150]]
file = io.BytesIO()
pictures[0].save(file, "GIF", save_all=True, append_images=pictures[1:], duration=66, loop=0)
display(Image(data=file.getvalue(), format="gif"))

# %% [markdown]
# ## Sampling from each player
#
# This cell joins half of the episodes of every player to one dataset. The first step of shuffling
# is to read several files at a time, in a different order in each epoch.

# %%
halves = "+".join(f"{name}[:50%]" for name in skills)
episodes = rlds.tfds.load(
    builder,
    halves,
    shuffle_files=True,
    read_config=tfds.ReadConfig(
        interleave_cycle_length=5,
        interleave_block_length=1,
        shuffle_seed=0,
        shuffle_reshuffle_each_iteration=True,
    ),
)
print(len(episodes), "episodes")

lengths = np.array([len(e[rlds.STEPS][rlds.REWARD]) for e in flags])
shares = np.cumsum(np.sort(lengths)[::-1]) / lengths.sum()
needed = int(np.searchsorted(shares, 0.5)) + 1
print(f"the {needed} longest of {len(lengths)} episodes have half of the steps")

# %% [markdown]
# ## Frame stacks, n-step rewards, next actions
#
# A single frame does not show the direction of the ball. `windows` adds the last four frames to
# each step. `transitions` sums the rewards of three steps. The next action is the action field,
# shifted by one step.


# %%
def with_next_action(steps):
    action = steps[rlds.ACTION]
    return {**steps, "next_action": tf.concat([action[1:], tf.zeros_like(action[:1])], axis=0)}


def prepared(episodes):
    stacked = rt.windows(rt.apply_nested_steps(episodes, with_next_action), history=4)
    return rt.transitions(stacked, n=3, gamma=0.99)


example = next(iter(prepared(rlds.tfds.load(builder, "player_5"))))[rlds.STEPS]
print(example[rlds.OBSERVATION].shape, example["next_observation"].shape)

step = int(np.argmax(example[rlds.REWARD]))
stack = example[rlds.OBSERVATION][step].numpy()[..., 0]
figure, axes = plt.subplots(1, 6, figsize=(12, 2.9))
for index, axis in enumerate(axes[:4]):
    axis.imshow(stack[index], cmap="gray")
    axis.set_title(f"t - {3 - index}" if index < 3 else "t")
axes[4].imshow(np.moveaxis(stack[1:], 0, -1))
axes[4].set_title("three as colors")
axes[5].imshow(example["next_observation"][step, -1, :, :, 0], cmap="gray")
axes[5].set_title("t + 3")
for axis in axes:
    axis.set(xticks=[], yticks=[])
plt.show()
print("reward of three steps:", float(example[rlds.REWARD][step]))

# %% [markdown]
# *The four frames of one step. As red, green and blue channels, only the moving ball has color.
# The last frame is the next observation of the transition.*
#
# ## Shuffling quality
#
# Consecutive steps are similar, so a batch of consecutive steps contains little information. This
# cell adds the number of the episode to each step, and plots the episodes in each batch.

# %%
indices = tf.data.Dataset.range(1000)


def with_episode(index, episode):
    steps = episode[rlds.STEPS]
    return {"steps": {"episode": tf.repeat(index, tf.shape(steps[rlds.REWARD])[0])}}


small = tf.data.Dataset.zip(indices, flags).map(with_episode)
pipelines = {
    "as stored": rt.to_nested(small).flat_map(lambda episode: episode["steps"]).batch(64),
    "16 episodes interleaved": rt.to_nested(small)
    .interleave(lambda episode: episode["steps"], cycle_length=16)
    .batch(64),
    "shuffle_steps, buffer 500": rt.shuffle_steps(small, batch_size=64, step_buffer=500, seed=0),
    "shuffle_steps, buffer 10,000": rt.shuffle_steps(small, batch_size=64, seed=0),
}

figure, axes = plt.subplots(1, 4, figsize=(13, 3.6), sharey=True)
for axis, (title, batches) in zip(axes, pipelines.items(), strict=True):
    episodes_by_batch = np.array([batch["episode"] for batch in batches.take(48)])
    image = axis.imshow(episodes_by_batch.T, cmap="turbo", aspect="auto", interpolation="nearest")
    per_batch = np.mean([len(np.unique(batch)) for batch in episodes_by_batch])
    axis.set_title(f"{title}\n{per_batch:.0f} episodes in a batch", fontsize=10)
    axis.set(xlabel="batch")
    axis.grid(False)
axes[0].set(ylabel="index in the batch")
figure.colorbar(image, ax=axes[-1], label="episode")
plt.show()

# %% [markdown]
# *Each column is a batch, each color an episode. In the stored order, a batch has one color. With
# a buffer of many episodes, it has all colors.*
#
# ## Duplicate frames
#
# Some frames are repeated, such as those before the first hit. This cell counts the frames of one
# episode that are also in another.

# %%
seen = []
for name in ("player_1", "player_5"):
    for episode in rlds.tfds.load(builder, name, fields=["observation"], decode=False):
        seen.append(set(episode[rlds.STEPS][rlds.OBSERVATION].numpy()))  # PNG files, as bytes.
shared = np.array([[len(one & other) / len(one) for other in seen] for one in seen])

figure, axis = plt.subplots(figsize=(5.6, 4.6))
image = axis.imshow(100 * shared, cmap="magma", vmax=40)
axis.set(title="Frames that are in both episodes", xlabel="episode", ylabel="episode")
axis.set_xticks([2.5, 8.5], ["player 1", "player 5"])
axis.set_yticks([2.5, 8.5], ["player 1", "player 5"], rotation=90, va="center")
axis.grid(False)
figure.colorbar(image, ax=axis, label="share of the frames (%)")
plt.show()

# %% [markdown]
# *Bright squares off the diagonal are games that begin with the same frames, because the serve
# was the same. Do not put such games into both training and test data.*
#
# ## Batches per second
#
# Decoding images takes time. Shuffle encoded images and decode them in the batch, or skip images
# that you do not need. The figure compares the speeds.


# %%
def batches_per_second(batches):
    begin = time.perf_counter()
    return sum(1 for _ in batches) / (time.perf_counter() - begin)


def batches_of(**options):
    return rt.shuffle_steps(rlds.tfds.load(builder, everything, **options), batch_size=32)


speeds = {
    "stacks of 4, 3-step": batches_per_second(
        rt.shuffle_steps(prepared(rlds.tfds.load(builder, everything)), batch_size=32)
    ),
    "frames": batches_per_second(batches_of()),
    "frames, not decoded": batches_per_second(batches_of(decode=False)),
    "without frames": batches_per_second(batches_of(fields=["action", "reward"])),
}
figure, axis = plt.subplots(figsize=(8, 2.6))
bars = axis.barh(list(speeds), list(speeds.values()), color="C0")
axis.bar_label(bars, [f"{speed:,.0f}" for speed in speeds.values()], padding=4)
axis.set(title="Batches of 32", xlabel="batches per second", xlim=(0, 1.2 * max(speeds.values())))
axis.invert_yaxis()
axis.grid(axis="y", visible=False)
plt.show()

# %% [markdown]
# *Most of the time is spent on decoding frames, and on copying each frame four times for the
# stacks.*
