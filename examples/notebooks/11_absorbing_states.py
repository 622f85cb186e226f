# %% [markdown]
# # Absorbing states in imitation learning
#
# Adversarial imitation (GAIL and its relatives) learns a reward from demonstrations: a
# discriminator scores the similarity of a step to those of the expert. Without data about the
# time after an episode, this reward has a bias. If it is never negative, the imitator avoids the
# end of the episode to collect more. If it is never positive, the imitator ends the episode as
# early as possible. One more step of data removes this bias: see [Kostrikov et al.
# 2019](https://arxiv.org/abs/1809.02925), and section 7.2 of the RLDS paper.
#
# This notebook shows both cases, and how `add_absorbing_states` removes the bias. The tasks are
# so small that the imitator computes occupancies and values exactly.

# %%
import tempfile
from pathlib import Path

import dm_env
import matplotlib.pyplot as plt
import numpy as np
from dm_env import specs

import envlogger
import rlds
import tfds_builders
from rlds import transformations as rt

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])
plt.rcParams["figure.constrained_layout.use"] = True
folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## Two tasks with six states
#
# A walker on a line of six positions goes left (0) or right (1); one step in twenty slips the
# other way. In *reach*, the goal is right of the line, and the episode ends there. In *survive*,
# a cliff is left of the line, and the episode ends there, too. No episode has more than 50 steps.
# The observation is the one-hot position of the walker.

# %%
POSITIONS, LONGEST, SLIP = 6, 50, 0.05
STARTS = {"reach": [0], "survive": [1, 2, 3]}


def after(task, position, move):
    """The position after a move (-1 or 1), or None if it ends the episode."""
    position += move
    if position == (POSITIONS if task == "reach" else -1):
        return None
    return min(max(position, 0), POSITIONS - 1)


class Walk(dm_env.Environment):
    def __init__(self, task, seed):
        self.task, self.rng = task, np.random.default_rng(seed)

    def observation_spec(self):
        return specs.BoundedArray((POSITIONS,), np.float32, 0, 1)

    def action_spec(self):
        return specs.DiscreteArray(2)

    def observation(self):
        return np.eye(POSITIONS, dtype=np.float32)[self.position]

    def reset(self):
        self.position, self.time = self.rng.choice(STARTS[self.task]), 0
        return dm_env.restart(self.observation())

    def step(self, action):
        move = (2 * action - 1) * (-1 if self.rng.random() < SLIP else 1)
        position, self.time = after(self.task, self.position, move), self.time + 1
        if position is None:
            return dm_env.termination(0.0, self.observation())
        self.position = position
        make = dm_env.truncation if self.time == LONGEST else dm_env.transition
        return make(0.0, self.observation())


# %% [markdown]
# ## Recording the expert
#
# The expert always goes right. No reward is recorded, because the imitator uses none.


# %%
def record(task, num_episodes=100):
    """Returns the expert's episodes as a dataset."""
    logs = folder / "logs" / task
    with envlogger.EnvLogger(Walk(task, seed=0), data_directory=logs) as env:
        for _ in range(num_episodes):
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(np.int64(1))
    return rlds.tfds.load(tfds_builders.build_from_logs(logs, name=task, data_dir=folder / "data"))


episodes = {task: record(task) for task in STARTS}
for task, dataset in episodes.items():
    ends = [steps[rlds.IS_TERMINAL].numpy()[-1] for steps in dataset.map(lambda e: e["steps"])]
    print(f"{task}: {len(ends)} episodes, {np.mean(ends):.0%} of them terminal")

# %% [markdown]
# ## Occupancy of the expert
#
# This cell counts each action at each position. `add_absorbing_states` replaces the terminal
# observation of an episode by an absorbing state, with a flag as one more element, and adds a
# step from this state to itself. So the flag becomes the seventh position.


# %%
def occupancy_of(dataset):
    """The share of each position and action in the transitions of the episodes."""
    counts = np.zeros((POSITIONS + 1, 2))
    for episode in dataset.as_numpy_iterator():
        steps = episode[rlds.STEPS]
        positions = steps[rlds.OBSERVATION].argmax(axis=-1)[:-1]  # The last step has no action.
        np.add.at(counts, (positions, steps[rlds.ACTION][:-1]), 1)
    return counts / counts.sum()


print(np.round(occupancy_of(episodes["reach"])[:, 1], 3))
print(np.round(occupancy_of(rt.add_absorbing_states(episodes["reach"])), 3)[:, 1], "and action 0:")
print(np.round(occupancy_of(rt.add_absorbing_states(episodes["reach"])), 3)[:, 0])

# %% [markdown]
# ## The imitator
#
# Each round, the discriminator compares the occupancy of the expert with the mean of those of all
# rounds so far, $D = d_E / (d_E + d_\pi)$. A function of it is the reward. Then the policy
# becomes a slightly softened optimum for this reward. Without absorbing states, the value of a
# terminal state is 0. With them, it is the discounted reward of staying there forever.

# %%
GAMMA, TEMPERATURE, ROUNDS = 0.99, 0.01, 60
REWARDS = {
    "log D (never positive)": np.log,
    "-log(1 - D) (never negative)": lambda d: -np.log(1 - d),
}


def probabilities(task):
    """The probabilities of transitions; the last position is the end."""
    table = np.zeros((POSITIONS, 2, POSITIONS + 1))
    for position, action, slips in np.ndindex(POSITIONS, 2, 2):
        next_position = after(task, position, (2 * action - 1) * (-1 if slips else 1))
        table[position, action, POSITIONS if next_position is None else next_position] += (
            SLIP if slips else 1 - SLIP
        )
    return table


def roll_out(policy, task, table, absorbing):
    """Returns the occupancy of a policy, the mean length, and the share of episodes that end."""
    now = np.zeros(POSITIONS)
    now[STARTS[task]] = 1 / len(STARTS[task])
    counts, ended = np.zeros((POSITIONS + 1, 2)), 0.0
    for _ in range(LONGEST):
        taken = now[:, None] * policy
        counts[:POSITIONS] += taken
        *now, ending = np.einsum("sa,san->n", taken, table)
        now, ended = np.array(now), ended + ending
    length = counts.sum()
    if absorbing:  # As in the data: one step in the absorbing state for each that ended.
        counts[POSITIONS, 0] = ended
    return counts / counts.sum(), length, ended


def best_policy(reward, table, absorbing, values):
    """Soft value iteration, from the values of the last round on, which it changes."""
    values[POSITIONS] = reward[POSITIONS, 0] / (1 - GAMMA) if absorbing else 0.0
    while True:
        q = reward[:POSITIONS] + GAMMA * table @ values
        highest = q.max(axis=1)
        powers = np.exp((q - highest[:, None]) / TEMPERATURE)
        new = highest + TEMPERATURE * np.log(powers.sum(axis=1))
        change, values[:POSITIONS] = np.abs(new - values[:POSITIONS]).max(), new
        if change < 1e-6:
            return powers / powers.sum(axis=1, keepdims=True)


def imitate(task, make_reward, absorbing):
    """Returns the mean length of the imitator's episodes in each round, and the share that end."""
    dataset = rt.add_absorbing_states(episodes[task]) if absorbing else episodes[task]
    expert, table = occupancy_of(dataset), probabilities(task)
    policy, values = np.full((POSITIONS, 2), 0.5), np.zeros(POSITIONS + 1)
    mean, rounds = np.zeros((POSITIONS + 1, 2)), []
    for index in range(ROUNDS + 1):
        occupancy, length, ended = roll_out(policy, task, table, absorbing)
        rounds.append((length, ended))
        mean += (occupancy - mean) / (index + 1)
        d = (expert + 1e-4) / (expert + mean + 2e-4)
        policy = best_policy(make_reward(d), table, absorbing, values)
    return np.transpose(rounds)


# %% [markdown]
# ## Results
#
# Two of the four runs without absorbing states fail. With them, all runs are as good as the
# expert. The table shows medians of the last 20 rounds.

# %%
EXPECTED = {  # (task, reward): the lengths without absorbing states, and with them.
    ("reach", "log D (never positive)"): (6.6, 6.6),
    ("reach", "-log(1 - D) (never negative)"): (49.8, 6.6),
    ("survive", "log D (never positive)"): (4.1, 50.0),
    ("survive", "-log(1 - D) (never negative)"): (50.0, 50.0),
}
lengths_by_case = {}
print(f"{'task':8} {'reward':29} {'absorbing':9} {'length':>6} {'expected':>8} {'ended':>6}")
for (task, name), expected in EXPECTED.items():
    for absorbing in (False, True):
        lengths, shares = imitate(task, REWARDS[name], absorbing)
        lengths_by_case[task, name, absorbing] = lengths
        length, ended = np.median(lengths[-20:]), np.median(shares[-20:])
        line = f"{task:8} {name:29} {'with' if absorbing else 'without':9} {length:6.1f}"
        print(f"{line} {expected[absorbing]:8.1f} {ended:6.0%}")
        assert abs(length - expected[absorbing]) < 1.5

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), sharey=True)
for axis, (task, name, story) in zip(
    axes,
    [
        ("reach", "-log(1 - D) (never negative)", "Reach: it never arrives"),
        ("survive", "log D (never positive)", "Survive: it jumps at once"),
    ],
    strict=True,
):
    for absorbing, label in [(False, "without absorbing states"), (True, "with them")]:
        axis.plot(lengths_by_case[task, name, absorbing], label=label)
    expert = {"reach": 6.6, "survive": 50.0}[task]
    axis.axhline(expert, color="black", linestyle=":", label="the expert")
    axis.set(title=f"{story}, reward {name.partition(' (')[0]}", xlabel="round", ylim=(0, 53))
    axis.legend(frameon=True)
axes[0].set_ylabel("steps of an episode")
figure.savefig(folder / "absorbing_states.png", dpi=120)
print(f"The picture: {folder / 'absorbing_states.png'}")
plt.show()

# %% [markdown]
# *Left: every step earns a reward, so the imitator walks back and forth before the goal, unlike
# the expert. Right: every step costs, so the imitator walks off the cliff. With absorbing states,
# the value of the end is learned: high for the goal, low for the cliff.*
