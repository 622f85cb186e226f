# %% [markdown]
# # Robotics: cameras, instructions, action chunks
#
# Data for robot policies contains camera images, joint positions, language instructions and
# actions. You record demonstrations of a small arm, write them in the format of Open
# X-Embodiment, which the loaders of Octo and OpenVLA read, and prepare them for training.

# %%
import tempfile
from pathlib import Path

import dm_env
import matplotlib.pyplot as plt
import numpy as np
from dm_env import specs
from PIL import Image, ImageDraw, ImageOps

import envlogger
import rlds
import rlds.sources
import rlds_tools
from rlds import transformations as rt
from rlds.validation import validate

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])
plt.rcParams["figure.constrained_layout.use"] = True
folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## Environment
#
# An arm with two joints and a gripper moves over a table with three cubes. One camera shows the
# table, another moves with the gripper. This is a `dm_env` environment. Your robot needs the same
# four methods.

# %%
TABLE = (236, 232, 222)
COLORS = {"red": (222, 77, 67), "green": (61, 163, 104), "blue": (58, 118, 205)}


class Arm(dm_env.Environment):
    """Touch the cube of the right color, and close the gripper."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def tip(self):
        angles = np.cumsum(self.joints)
        elbow = np.array([np.cos(angles[0]), np.sin(angles[0])]) * 0.5
        return elbow, elbow + np.array([np.cos(angles[1]), np.sin(angles[1])]) * 0.45

    def reset(self):
        self.joints = np.array([1.2, 0.9]) + self.rng.normal(0, 0.1, 2)
        self.gripper, self.time = 0.0, 0
        angles = np.array([0.0, 1.0, 2.0]) + self.rng.uniform(0.1, 0.9, 3)
        radius = self.rng.uniform(0.5, 0.9, 3)
        positions = np.stack([np.cos(angles), np.sin(angles)], axis=1) * radius[:, None]
        self.cubes = dict(zip(COLORS, self.rng.permutation(positions), strict=True))
        self.color = str(self.rng.choice(list(COLORS)))
        self.instruction = f"touch the {self.color} cube"
        return dm_env.restart(self.observation())

    def step(self, action):
        self.joints = self.joints + np.clip(action[:2], -0.15, 0.15)  # Radians.
        self.gripper = float(np.clip(action[2], 0, 1))
        self.time += 1
        distance = np.linalg.norm(self.tip()[1] - self.cubes[self.color])
        if distance < 0.07 and self.gripper > 0.5:
            return dm_env.termination(1.0, self.observation())
        end = dm_env.truncation if self.time == 60 else dm_env.transition
        return end(0.0, self.observation())

    def observation(self):
        def pixel(point):
            return float(128 + 112 * point[0]), float(240 - 210 * point[1])

        elbow, tip = self.tip()
        table = Image.new("RGB", (256, 256), TABLE)
        draw = ImageDraw.Draw(table)
        for color, cube in self.cubes.items():
            (x, y), r = pixel(cube), 13
            draw.rounded_rectangle((x - r, y - r, x + r, y + r), 4, fill=COLORS[color])
        draw.line([pixel((0, 0)), pixel(elbow), pixel(tip)], fill=(70, 74, 84), width=14)
        for point, r in (((0, 0), 16), (elbow, 11), (tip, 9 - 4 * self.gripper)):
            x, y = pixel(point)
            draw.ellipse((x - r, y - r, x + r, y + r), fill=(240, 173, 60))
        x, y = pixel(tip)
        x, y = x + 100, y + 100
        hand = ImageOps.expand(table, 100, TABLE)
        hand = hand.rotate(90 - np.degrees(self.joints.sum()), center=(x, y), fillcolor=TABLE)
        hand = hand.crop((int(x) - 48, int(y) - 64, int(x) + 48, int(y) + 32))
        state = np.array([*self.joints, self.gripper], np.float32)
        return {
            "image": np.asarray(table.resize((96, 96), Image.Resampling.LANCZOS)),
            "wrist_image": np.asarray(hand.resize((64, 64), Image.Resampling.LANCZOS)),
            "state": state,
        }

    def observation_spec(self):
        return {
            "image": specs.BoundedArray((96, 96, 3), np.uint8, 0, 255),
            "wrist_image": specs.BoundedArray((64, 64, 3), np.uint8, 0, 255),
            "state": specs.Array((3,), np.float32),
        }

    def action_spec(self):
        return specs.BoundedArray((3,), np.float32, (-0.15, -0.15, 0), (0.15, 0.15, 1))


# %% [markdown]
# ## Demonstrations
#
# A simulated person waits a moment, moves roughly straight to the cube, and closes the gripper.


# %%
def demonstrate(env, rng):
    timestep = env.reset()
    waits = rng.integers(2, 7)
    while not timestep.last():
        elbow, tip = env.tip()
        error = env.cubes[env.color] - tip
        lever = np.array([[-tip[1], tip[0]], [elbow[1] - tip[1], tip[0] - elbow[0]]])
        turn = np.clip(1.5 * lever @ error + 0.04 * rng.normal(size=2), -0.15, 0.15)
        action = np.array([*turn, np.linalg.norm(error) < 0.06], np.float32)
        timestep = env.step(action if env.time >= waits else 0 * action)


def step_fn(timestep, action, env):
    return {"language_instruction": env.instruction}


rng = np.random.default_rng(0)
with envlogger.EnvLogger(
    Arm(seed=0), data_directory=folder / "logs", step_fn=step_fn, metadata={"robot": "arm 3"}
) as env:
    for _ in range(40):
        demonstrate(env, rng)

recorded = rlds.sources.open(folder / "logs")
successes = [not episode.truncated for episode in recorded]
print(sum(successes), "of", len(recorded), "demonstrations reach the cube")

# %%
columns = recorded.columns(1)
cameras = columns["observation"]
step_indices = np.linspace(0, len(cameras["image"]) - 1, 8).astype(int)
figure, axes = plt.subplots(2, 8, figsize=(12, 3.4))
for name, row in zip(("image", "wrist_image"), axes, strict=True):
    for axis, step in zip(row, step_indices, strict=True):
        axis.imshow(cameras[name][step])
        axis.set(xticks=[], yticks=[])
for axis, step in zip(axes[0], step_indices, strict=True):
    axis.set_title(f"step {step}", fontsize=9)
axes[0, 0].set(ylabel="table")
axes[1, 0].set(ylabel="wrist")
figure.suptitle(f"“{columns['language_instruction'][0]}”")
plt.show()

# %% [markdown]
# *One demonstration in both cameras.*
#
# ## Open X-Embodiment format
#
# In this format, each step contains the instruction, numbers are float32, images are encoded, and
# an episode has `episode_metadata`. An `EpisodeWriter` writes the demonstrations from arrays.
# This cell skips those that failed.


# %%
def in_open_x_form(index):
    steps = recorded.columns(index)
    for name in ("reward", "discount"):
        steps[name] = steps[name].astype(np.float32)
    return {"steps": steps, "episode_metadata": {"file_path": f"logs/{index}"}}


config = rlds.tfds.generate_config_from_spec(in_open_x_form(0), name="small_arm")
data = folder / "data" / "small_arm" / "1.0.0"
with rlds.tfds.EpisodeWriter(
    data, config, split_name=["train", "val"], version="1.0.0", tensor_encoding="none"
) as writer:
    for index in np.flatnonzero(successes):
        split = "val" if index % 8 == 0 else "train"
        writer.add_episode_to_split(in_open_x_form(index), split)

# %% [markdown]
# `validate(profile="octo")` checks the requirements of those loaders. An error names the episode
# and the field.

# %%
print(validate(data, profile="octo"))

# %% [markdown]
# A report shows videos of both cameras, synchronized with the curves of the actions.

# %%
rlds_tools.report(data, "train")

# %% [markdown]
# ## Idle steps
#
# While the person waits, the arm does not move. `drop_idle_steps` removes these steps.

# %%
episodes = rlds.tfds.load(data, "train")
moving = rt.drop_idle_steps(episodes, tolerance=1e-3, min_run=2)
before, after = (next(iter(dataset))[rlds.STEPS][rlds.ACTION] for dataset in (episodes, moving))

figure, axes = plt.subplots(1, 2, figsize=(11, 3.2), sharey=True)
names = ["shoulder", "elbow", "gripper"]
for axis, actions, title in zip(
    axes, (before, after), ("As recorded", "Without idle steps"), strict=True
):
    axis.plot(actions[:-1, :2], "o-", ms=4, label=names[:2])
    axis.set(title=title, xlabel="step", xlim=(-1, len(before)))
idle = len(before) - len(after)
axes[0].axvspan(-0.5, idle - 0.5, color="0.5", alpha=0.15)
axes[0].set(ylabel="action (radians)")
axes[1].legend(loc="lower right", frameon=True)
plt.show()

# %% [markdown]
# *Gray steps are removed.*
#
# ## Histories and action chunks
#
# `windows` adds the last two observations and the next eight actions to each step. Masks mark
# padding before the first and after the last step.

# %%
chunks = rt.windows(moving, history=2, horizon=8)
steps = next(iter(chunks))[rlds.STEPS]
print("observation", steps[rlds.OBSERVATION]["image"].shape, "action", steps[rlds.ACTION].shape)

figure, (left, right) = plt.subplots(1, 2, figsize=(12, 3.6), width_ratios=[3, 2])
chosen = steps[rlds.ACTION][:, :, 0].numpy()
left.plot(after[:-1, 0], "k", lw=2, label="actions of the shoulder")
for begin in range(0, len(chosen) - 1, 4):
    mask = steps["action_pad_mask"][begin].numpy()
    rows = begin + np.arange(8)
    left.plot(rows[mask], chosen[begin][mask] + 0.02 * (1 + begin // 4), "o-", ms=4)
left.set(title="Chunks of every fourth step, moved up", xlabel="step", ylabel="action (radians)")
left.legend(frameon=True, loc="upper right")
masks = steps["action_pad_mask"].numpy()
right.imshow(masks.T, cmap="Blues", vmin=-0.3, vmax=1.3, aspect="auto")
right.set(title="action_pad_mask", xlabel="step", ylabel="index in the chunk")
right.grid(False)
plt.show()

# %% [markdown]
# *Left: a chunk (colored) contains the actions (black) from its step on. Right: near the end, the
# chunks are padded (light).*
#
# ## Statistics and normalization
#
# Policies need actions between -1 and 1. The gripper is not normalized: its mask is False. This
# cell computes statistics, saves them in the format of Octo and OpenVLA, and plots the actions
# before and after normalization.

# %%
statistics = rt.compute_statistics(moving, masks={"action": [True, True, False]})
(folder / "dataset_statistics.json").write_text(statistics.to_json(dataset_name="small_arm"))
normalized = rt.normalize(moving, statistics, kind="bounds_q99")

figure, axes = plt.subplots(2, 3, figsize=(11, 4.6), sharey="row")
for row, (dataset, label) in enumerate([(moving, "recorded"), (normalized, "normalized")]):
    actions = np.concatenate([episode[rlds.STEPS][rlds.ACTION][:-1] for episode in dataset])
    for column, axis in enumerate(axes[row]):
        axis.hist(actions[:, column], bins=np.linspace(-1.1, 1.1, 56), color=f"C{row}")
        axis.set(title=f"{names[column]}, {label}", yscale="log")
axes[0, 0].set(ylabel="steps")
axes[1, 0].set(ylabel="steps")
plt.show()
print(statistics)

# %% [markdown]
# *Joint actions are between -1 and 1 after normalization; the gripper is unchanged.
# `rt.unnormalize` converts the output of a policy back to actions of the robot.*
#
# ## Goal images
#
# Without instructions, a later image of the same episode can be the goal. `relabel_goals` samples
# one for each step. The figure shows observations and their goals.

# %%
with_goals = rt.relabel_goals(
    moving, seed=0, strategy="uniform", get_goal=lambda observation: observation["image"]
)
figure, axes = plt.subplots(2, 6, figsize=(10, 3.7))
for column, episode in zip(axes.T, with_goals.take(6), strict=True):
    steps = episode[rlds.STEPS]
    column[0].imshow(steps[rlds.OBSERVATION]["image"][3])
    column[1].imshow(steps["goal"][3])
    column[1].set_xlabel(f"{int(steps['goal_distance'][3])} steps later", fontsize=9)
for axis in axes.flat:
    axis.set(xticks=[], yticks=[])
axes[0, 0].set(ylabel="observation")
axes[1, 0].set(ylabel="goal")
plt.show()

# %% [markdown]
# ## Mixtures
#
# Training usually mixes several datasets with weights. Here each instruction is one dataset, and
# the red cube has twice the weight of the other datasets. The figure counts the sampled episodes.


# %%
def with_instruction(color):
    text = f"touch the {color} cube"
    return episodes.filter(lambda e: e[rlds.STEPS]["language_instruction"][0] == text)


mixture = rt.mix([with_instruction(color) for color in COLORS], weights=[2, 1, 1], seed=0)
only_text = mixture.map(lambda e: e[rlds.STEPS]["language_instruction"][0])
drawn = [text.decode().split()[2] for text in only_text.take(400).as_numpy_iterator()]

figure, axis = plt.subplots(figsize=(6, 2.2))
for color, rgb in COLORS.items():
    bar = axis.barh(color, drawn.count(color), color=np.array(rgb) / 255)
    axis.bar_label(bar, padding=4)
axis.set(title="400 episodes of the mixture", xlabel="episodes", xlim=(0, 240))
axis.invert_yaxis()
axis.grid(axis="y", visible=False)
plt.show()
