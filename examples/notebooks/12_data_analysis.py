# %% [markdown]
# # Data analysis with tags
#
# Episodes often continue after the task is done. In section 7.3 of the [RLDS
# paper](https://arxiv.org/abs/2111.02767), people put a can into a bin, and each episode has 400
# steps; a *tag* marks the step when the can is in the bin. The paper shows code that computes the
# returns up to that step, but no results.
#
# Here two drivers swing up a pendulum, and a tag marks the step when it is upright. Which driver
# is better? The answer changes if you truncate the episodes at the tag.

# %%
import tempfile
from pathlib import Path

import gymnasium
import matplotlib.pyplot as plt
import numpy as np

import envlogger
import rlds
import tfds_builders
from envlogger.gymnasium_adapter import GymnasiumAdapter
from rlds import transformations as rt

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])
plt.rcParams["figure.constrained_layout.use"] = True
folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## Recording two drivers
#
# Both drivers swing the pendulum until it is fast enough, and both start from the same states.
# The *shaky* driver acts at random in 3 steps of 10, and holds the pendulum upright. The *hasty*
# driver makes no mistake, but lets go when the pendulum is upright, because the task is done.
#
# `step_fn` records the tag. The cell also keeps the rewards and the tag in memory, to compare
# them with the dataset.

# %%
EPISODES = 20


def is_up(observation):
    """Whether the pendulum stands upright: less than 18 degrees off, and slowly."""
    cosine, _, velocity = observation
    return bool(cosine > 0.95 and abs(velocity) < 1.0)


def step_fn(timestep, action, env):
    return {"upright": is_up(timestep.observation)}


def swing_up(observation):
    """The torque that swings the pendulum up, and holds it there."""
    cosine, sine, velocity = observation
    if cosine > 0.7 and abs(velocity) < 5.0:
        return -15.0 * sine - 3.0 * velocity
    energy = velocity**2 / 6.0 + 5.0 * cosine
    return (5.0 - energy) * velocity  # Push with the motion until there is enough of it.


def shaky(observation, was_up, rng):
    return rng.uniform(-2.0, 2.0) if rng.random() < 0.3 else swing_up(observation)


def hasty(observation, was_up, rng):
    return 0.0 if was_up else swing_up(observation)


def record(name, driver):
    """Returns the driver's episodes as a dataset; and the rewards and tags of each as noted."""
    pendulum = GymnasiumAdapter(gymnasium.make("Pendulum-v1"), seed=0)
    rng, noted, logs = np.random.default_rng(0), [], folder / "logs" / name
    with envlogger.EnvLogger(pendulum, data_directory=logs, step_fn=step_fn) as env:
        for _ in range(EPISODES):
            timestep = env.reset()
            rewards, tags = [], [is_up(timestep.observation)]
            while not timestep.last():
                torque = driver(timestep.observation, any(tags), rng)
                timestep = env.step(np.clip([torque], -2.0, 2.0).astype(np.float32))
                rewards.append(timestep.reward)
                tags.append(is_up(timestep.observation))
            noted.append((rewards, tags))
    built = tfds_builders.build_from_logs(logs, name=name, data_dir=folder / "data")
    return rlds.tfds.load(built), noted


recorded = {driver.__name__: record(driver.__name__, driver) for driver in (shaky, hasty)}
print(*recorded["shaky"][0].element_spec[rlds.STEPS], sep=", ")

# %% [markdown]
# ## Truncation at the tag
#
# `truncate_after_condition` keeps the steps up to the first step with the tag. An episode without
# a tag is unchanged. In that step the pendulum is already upright, so its reward belongs to the
# time after the task. `set_is_last` marks it as the last step. All functions treat action and
# reward of a last step as placeholders.


# %%
def up_to_tag(steps):
    return rt.truncate_after_condition(steps, lambda step: step["upright"], set_is_last=True)


def described(episode):
    """Returns the statistics of an episode: return, length and rewards."""
    steps = episode[rlds.STEPS]
    return {
        "number": episode["episode_id"],
        "return": rt.episode_return(steps),
        "length": rt.episode_length(steps) - 1,  # There is a step more than transitions.
        "rewards": steps[rlds.REWARD][:-1],  # Without the placeholder.
    }


def analyzed(episodes):
    """The returns and lengths, in the order in which they were recorded, and all rewards."""
    episode_values = sorted(
        episodes.map(described).as_numpy_iterator(), key=lambda e: int(e["number"])
    )
    returns, lengths = ([e[name] for e in episode_values] for name in ("return", "length"))
    return (
        np.array(returns),
        np.array(lengths),
        np.concatenate([e["rewards"] for e in episode_values]),
    )


SCOPES = ("whole", "up to the tag")
results = {}
for name, (episodes, _) in recorded.items():
    results[name, "whole"] = analyzed(episodes)
    results[name, "up to the tag"] = analyzed(rt.apply_nested_steps(episodes, up_to_tag))

# %% [markdown]
# ## Check against the drivers
#
# This cell compares returns and rewards of the dataset with those kept in memory. The first
# tagged step is the arrival, so the rewards before it count.

# %%
for name, (_, noted) in recorded.items():
    for scope in SCOPES:
        ends = [tags.index(True) if scope == "up to the tag" else len(r) for r, tags in noted]
        returns, lengths, rewards = results[name, scope]
        assert lengths.tolist() == ends
        np.testing.assert_allclose(
            returns, [sum(r[:end]) for (r, _), end in zip(noted, ends, strict=True)], rtol=1e-12
        )
        print(f"{name}, {scope}: {len(returns)} returns and {len(rewards)} rewards are the same")

# %% [markdown]
# ## Comparison of the drivers

# %%
EXPECTED = {  # The means of the returns and of the lengths.
    ("shaky", "whole"): (-218.7, 200.0),
    ("hasty", "whole"): (-660.3, 200.0),
    ("shaky", "up to the tag"): (-192.9, 36.5),
    ("hasty", "up to the tag"): (-152.9, 32.0),
}
print(f"{'driver':7} {'episodes':14} {'return':>8} {'expected':>9} {'length':>8} {'expected':>9}")
for (name, scope), (expected_return, expected_length) in EXPECTED.items():
    returns, lengths, _ = results[name, scope]
    line = f"{name:7} {scope:14} {returns.mean():8.1f} {expected_return:9.1f}"
    print(f"{line} {lengths.mean():8.1f} {expected_length:9.1f}")
    assert abs(returns.mean() - expected_return) < 1.0
    assert abs(lengths.mean() - expected_length) < 0.5

# %%
figure, axes = plt.subplots(2, 3, figsize=(12, 5.5), sharex="col")
for row, scope in zip(axes, SCOPES, strict=True):
    returns, lengths, rewards = zip(*(results[name, scope] for name in recorded), strict=True)
    for axis, values, bins in [
        (row[0], rewards, np.linspace(-16.5, 0, 12)),
        (row[1], returns, np.linspace(-800, 0, 17)),
        (row[2], lengths, np.linspace(0, 210, 22)),
    ]:
        axis.hist(values, bins, color=["C0", "C2"], label=list(recorded))
    row[0].set(ylabel=f"{scope}\ncount", yscale="log", ylim=1)
axes[0, 0].legend(frameon=True, loc="upper left")
for axis, title in zip(axes[0], ("Rewards", "Returns", "Lengths"), strict=True):
    axis.set_title(title)
for axis, label in zip(axes[1], ("of a transition", "of an episode", "transitions"), strict=True):
    axis.set_xlabel(label)
figure.savefig(folder / "data_analysis.png", dpi=120)
print(f"The picture: {folder / 'data_analysis.png'}")
plt.show()

# %% [markdown]
# *Top: all episodes have 200 transitions, and most of the return is from the time after the task:
# the pendulum of the hasty driver fell. Bottom: up to the tag, the hasty driver is better: it
# needs fewer transitions, so it collects fewer negative rewards. Three episodes begin with an
# upright pendulum; up to the tag, they have no transitions and a return of 0.*
#
# ## Effect of placeholders
#
# The best possible reward is 0. The placeholder in the last step of each episode is also 0. A
# histogram of all steps would count placeholders as the best rewards. This cell counts them.

# %%
for name, (episodes, _) in recorded.items():
    rewards = np.concatenate([episode[rlds.STEPS][rlds.REWARD].numpy() for episode in episodes])
    print(f"{name}: {np.sum(rewards == 0)} rewards are 0, of which {EPISODES} are placeholders")
    assert np.sum(rewards == 0) == EPISODES + np.sum(results[name, "whole"][2] == 0)
