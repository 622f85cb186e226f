# %% [markdown]
# # Audit: faults in demonstrations
#
# A policy also learns the faults of its data. You generate 30 demonstrations of an arm, plant four
# faults, and let an audit find them. The audit has no settings: it compares each episode with all
# other episodes. Then you edit the dataset, and audit the result.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import rlds
import rlds.sources
from rlds.auditing import audit
from rlds.editing import Delete, Trim

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])
plt.rcParams["figure.constrained_layout.use"] = True
folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## Demonstrations
#
# The state has the angles of three joints in radians, 10 times a second. The action is the next
# target of each joint. There are two tasks. In *stack the cubes*, every fourth demonstration goes
# back to the first pose once: the recording is correct, but a poor example.

# %%
TASKS = ("open the drawer", "stack the cubes")
POSES = np.sort(np.random.default_rng(7).uniform(-1.5, 1.5, (2, 6, 3)), axis=1)


def demonstration(rng, index):
    """Returns the states and the actions of an episode."""
    poses = POSES[index % 2] + rng.normal(scale=0.4, size=3) + rng.normal(scale=0.15, size=(6, 3))
    if index % 8 == 5:
        poses = poses[[0, 1, 2, 0, 1, 2, 3, 4, 5]]
    rows = int(rng.uniform(9, 12) * (len(poses) - 1))
    phase = np.linspace(0, len(poses) - 1, rows + 1)
    phase = np.floor(phase) + (1 - np.cos(np.pi * (phase % 1))) / 2  # Slow at each pose.
    path = np.stack([np.interp(phase, range(len(poses)), joint) for joint in poses.T], axis=1)
    targets = path[1:] + rng.normal(scale=0.01, size=(rows, 3))  # A hand trembles.
    return np.concatenate([path[:1], 0.2 * path[:-1] + 0.8 * targets]), targets


rng = np.random.default_rng(0)
demonstrations = [demonstration(rng, index) for index in range(30)]

# %% [markdown]
# Four episodes get a fault each. Each episode becomes a `.npz` file.

# %%
for index, (state, action) in enumerate(demonstrations):
    if index == 4:
        state[30, 1] += 0.8  # A number was transmitted wrong.
    if index == 11:
        state, action = state[:-1], np.concatenate([action[:1], action[:-2]])  # One row late.
    if index == 18:
        action = np.rad2deg(action)
    if index == 25:  # The recording began before the operator.
        idle = np.repeat(state[:1], 40, axis=0)
        state, action = np.concatenate([idle, state]), np.concatenate([idle, action])
    columns = {"observation": state, "action": action, "instruction": TASKS[index % 2]}
    np.savez(folder / f"{index:02}.npz", **columns, terminal=True)

# %% [markdown]
# ## First audit
#
# For your own data, start here: `rlds.sources.open` reads LeRobot, TFDS, HDF5 and many other
# formats. On the command line, this is `rlds audit PATH`.
#
# The first line tells the meaning of the action. Here it is *absolute*: the state has its value
# one row later, `t+1`. The scale is 1, so both have the same unit. If your policy expects changes
# or degrees, stop here.

# %%
opened = rlds.sources.open(folder)
report = audit(opened)
for vector in report.vectors:
    print(*vector.sentences(), sep="\n")
for finding in report.findings:
    print(f"episode {finding.episode:2}  {finding.check:6} {finding.text}")

planted = {(4, "spike"), (11, "lag"), (18, "scale"), (25, "idle")}
assert {(finding.episode, finding.check) for finding in report.findings} == planted

# %% [markdown]
# ## Findings against usual episodes
#
# This cell plots the channel of each finding, with other episodes of the same task in gray.

# %%
CHANNELS = {
    "spike": ("observation[1]", lambda state, action: state[:, 1]),
    "lag": ("next state - target", lambda state, action: state[1:, 0] - action[:, 0]),
    "scale": ("action[0]", lambda state, action: action[:, 0]),
    "idle": ("observation[0]", lambda state, action: state[:, 0]),
}


def draw(axis, index, check, **style):
    episode = opened[index]
    # The last step has an observation, and a placeholder for the action.
    axis.plot(CHANNELS[check][1](episode["observation"], episode["action"][:-1]), **style)


figure, axes = plt.subplots(1, 4, figsize=(14, 3.2))
for axis, (index, check) in zip(axes, sorted(planted), strict=True):
    for usual in set(range(index % 2, 30, 4)) - set(report.episodes):
        draw(axis, usual, check, color="0.75", lw=1)
    draw(axis, index, check, color="C2")
    axis.set(title=f"Episode {index}: {check}", xlabel="row", ylabel=CHANNELS[check][0])
plt.show()

# %% [markdown]
# *From left to right: one number is wrong. The next state should be near the target; here it is
# ahead, as the target is one row late. Next to degrees, radians look like a line at zero. The arm
# rests for 40 rows.*
#
# ## Scores per task
#
# Findings are faults; scores rank all episodes, and higher is better. A score has one purpose: a
# task that ends where it starts has a low *efficiency* by nature. Compare within a task.

# %%
figure, axes = plt.subplots(2, 3, figsize=(12, 4.6), sharex="col", sharey=True)
for task, row in enumerate(axes):
    for axis, score in zip(row, ("efficiency", "steadiness", "activity"), strict=True):
        bins = np.linspace(report.scores[score].min(), report.scores[score].max(), 21)
        axis.hist(report.scores[score][task::2], bins, color=f"C{task}")
        axis.set(title=score if task == 0 else "", xlabel=score if task else "")
    row[0].set(ylabel=f"{TASKS[task]}\nepisodes", yticks=range(0, 16, 5))
plt.show()

# %% [markdown]
# *Left: the four detours of the lower task are far from its other episodes. Left and middle: in the
# upper task, the episode with the spike has the lowest scores. Right: the idle episode moves in 6
# of 10 rows.*
#
# ## Edit
#
# `rlds.edit` deletes what cannot be repaired, and trims the idle start. The audit has become a
# column of the table of episodes, so a condition can use its scores: this one deletes the detours.
# The result is a new dataset, in LeRobot's format; the files of the recording stay.

# %%
edited = rlds.edit(
    folder,
    Delete(episodes=[4, 11, 18]),
    Trim(begin=38, where="number = 25"),
    Delete(where="audit.efficiency < 0.52"),
    to=folder / "clean",
    to_format="lerobot",
    target_options={"fps": 10},
)
print(edited.num_episodes, "of 30 episodes stay")

again = audit(rlds.sources.open(folder / "clean"))
print(len(again.findings), "findings;", *again.vectors[0].sentences())
assert not again.findings
assert not again.facts

# %% [markdown]
# The rate of the rows is now declared, so `again.scores` has *smoothness*, too. The page
# [Audit](https://rlds-ecosystem.github.io/rlds-ecosystem/audit.html) lists all findings and scores,
# and leads from a symptom, such as a policy that jitters, to those that explain it.
