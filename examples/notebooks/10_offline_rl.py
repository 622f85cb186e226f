# %% [markdown]
# # Offline reinforcement learning
#
# Half of the recorded episodes are good, half are random. A clone of all episodes is as bad as
# the mixture. TD3+BC ([Fujimoto and Gu](https://arxiv.org/abs/2106.06860), 2021) uses the rewards
# to recognize good actions. It learns from the data alone, in JAX, on batches of `rlds.feeds`.
# Then you estimate the values of the policies, also from the data alone.

# %%
import tempfile
from itertools import pairwise
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import envlogger
import rlds.evaluation
import rlds.feeds
from envlogger.gymnasium_adapter import GymnasiumAdapter

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])
plt.rcParams["figure.constrained_layout.use"] = True
folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## Recording
#
# A pendulum hangs from a motor that is too weak to lift it at once. A controller swings it up and
# holds it. Episodes of the controller and random episodes alternate.


# %%
def swing_up(observation):
    cosine, sine, velocity = np.moveaxis(observation, -1, 0)
    hold = -15 * sine - 3 * velocity
    # Push with the motion, until the energy is enough.
    push = (5 - velocity**2 / 6 - 5 * cosine) * velocity
    torque = np.where((cosine > 0.7) & (abs(velocity) < 5), hold, push)
    return np.clip(torque[..., None], -2, 2).astype(np.float32)


rng = np.random.default_rng(0)
returns = np.zeros(50)
environment = GymnasiumAdapter(gymnasium.make("Pendulum-v1", disable_env_checker=True), seed=0)
with envlogger.EnvLogger(environment, data_directory=folder / "logs") as env:
    for index in range(50):
        timestep = env.reset()
        while not timestep.last():
            action = swing_up(timestep.observation)
            if index % 2 or rng.random() < 0.1:
                action = rng.uniform(-2, 2, 1).astype(np.float32)
            timestep = env.step(action)
            returns[index] += timestep.reward
print("controller", round(returns[::2].mean()), "random", round(returns[1::2].mean()))

# %% [markdown]
# ## Transition batches
#
# Each episode is truncated after 200 steps, so its last state has a value. `discount` is 1 there.
# It is 0 only after a terminal state.

# %%
GAMMA = 0.98

rlds.feeds.materialise(folder / "logs", folder / "data", progress=False)
table = rlds.feeds.open(folder / "data", progress=False)
feed = rlds.feeds.Feed(table.transitions(gamma=GAMMA), batch_size=256, seed=0)
print(table)
print("discounts:", np.unique(feed[0]["discount"]))

# %% [markdown]
# ## TD3+BC
#
# Two critics estimate the value of an action. The actor searches for actions of high value that
# are close to recorded actions, because the critics are accurate only near the data. `ALPHA`
# weighs these two aims. With 0, the actor is a clone.

# %%
ALPHA = 10.0
SCALE = jnp.array([1.0, 1.0, 4.0])  # Of observations.


def network(layers, inputs):
    for weights, bias in layers[:-1]:
        inputs = jax.nn.relu(inputs @ weights + bias)
    weights, bias = layers[-1]
    return inputs @ weights + bias


def actor(layers, observation):
    return jnp.tanh(network(layers, observation / SCALE))  # Torques between -1 and 1.


def critic(layers, observation, action):
    pair = jnp.concatenate([observation / SCALE, action], axis=-1)
    return network(layers, pair)[:, 0]


def critics_loss(networks, slow, batch, noise):
    """A value is a reward, and the discounted value of what follows."""
    following = batch["next_observation"]
    action = jnp.clip(actor(slow["actor"], following) + noise, -1, 1)
    values = [critic(layers, following, action) for layers in slow["critics"]]
    target = batch["reward"] / 8 + batch["discount"] * jnp.minimum(*values)
    return sum(
        jnp.mean((critic(layers, batch["observation"], batch["action"] / 2) - target) ** 2)
        for layers in networks["critics"]
    )


def actor_loss(networks, batch, alpha):
    action = actor(networks["actor"], batch["observation"])
    value = critic(jax.lax.stop_gradient(networks["critics"][0]), batch["observation"], action)
    weight = alpha / jax.lax.stop_gradient(jnp.abs(value).mean())
    return -weight * value.mean() + jnp.mean((action - batch["action"] / 2) ** 2)


@jax.jit
def update(state, batch, noise, alpha):
    """One step of Adam for all networks; the slow copies follow."""
    networks, slow, mean, square, count = state

    def loss(networks):
        return critics_loss(networks, slow, batch, noise) + actor_loss(networks, batch, alpha)

    gradient, count = jax.grad(loss)(networks), count + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
    square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g**2, square, gradient)
    rate = 1e-3 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    networks = jax.tree.map(
        lambda p, m, s: p - rate * m / (jnp.sqrt(s) + 1e-8), networks, mean, square
    )
    slow = jax.tree.map(lambda old, new: old + 0.01 * (new - old), slow, networks)
    return networks, slow, mean, square, count


# %% [markdown]
# ## Training


# %%
def first_state(seed):
    rng = np.random.default_rng(seed)

    def layers(*sizes):
        return [(rng.normal(0, n**-0.5, (n, m)), np.zeros(m)) for n, m in pairwise(sizes)]

    networks = {"actor": layers(3, 128, 128, 1)}
    networks["critics"] = [layers(4, 128, 128, 1) for _ in range(2)]
    networks = jax.tree.map(jnp.float32, networks)
    zeros = jax.tree.map(jnp.zeros_like, networks)
    return networks, networks, zeros, zeros, 0


arena = gymnasium.make_vec("Pendulum-v1", num_envs=50, vectorization_mode="sync")


def play(policy, gamma=1.0):
    """The mean return of 50 episodes, which begin where the recorded ones began."""
    arena.reset(seed=0)
    for env, start in zip(arena.envs, data.initial_observations, strict=True):
        env.unwrapped.state = np.array([np.arctan2(start[1], start[0]), start[2]])
    observations, total = data.initial_observations, 0.0
    for step in range(200):
        observations, rewards, *_ = arena.step(policy(observations))
        total += gamma**step * rewards.mean()
    return total


def learn(alpha, updates):
    rng, state, curve = np.random.default_rng(0), first_state(0), {}
    for index in range(updates):
        batch = {name: feed[index][name] for name in FIELDS}
        noise = np.clip(rng.normal(0, 0.2, (256, 1)), -0.5, 0.5).astype(np.float32)
        state = update(state, batch, noise, alpha)
        if (index + 1) % (updates // 8) == 0:
            curve[index + 1] = play(policy_of(state))
    return policy_of(state), curve


compiled = jax.jit(actor)


def policy_of(state):
    return lambda observations: 2 * np.asarray(compiled(state[0]["actor"], observations))


FIELDS = ["observation", "action", "reward", "discount", "next_observation"]
data = rlds.evaluation.collect(table)
learned, curve = learn(ALPHA, updates=4000)
cloned, _ = learn(0.0, updates=1000)
played = {
    "TD3+BC": play(learned),
    "clone": play(cloned),
    "controller": play(swing_up),
    "random actions": returns[1::2].mean(),
}
for name, value in played.items():
    print(f"{name:15} {value:6.0f}")

# %% [markdown]
# Expected mean returns: more than -600 for TD3+BC, and at least 200 less for the clone.

# %%
assert played["TD3+BC"] > -600, played
assert played["TD3+BC"] > played["clone"] + 200, played

figure, axis = plt.subplots(figsize=(7, 3.8))
axis.plot(list(curve), list(curve.values()), "o-", label="TD3+BC")
for (name, value), style in zip(list(played.items())[1:], ["--", ":", "-."], strict=True):
    axis.axhline(value, color="0.4", ls=style, label=name)
axis.axhline(returns.mean(), color="C1", label="the data")
axis.set(title="Learning from the data alone", xlabel="updates", ylabel="return of an episode")
axis.legend(frameon=True)
plt.show()

# %% [markdown]
# *The mean return of the data is about -700. TD3+BC learns from it to act nearly as well as the
# controller. Only this figure needs the environment; training does not.*
#
# ## Off-policy evaluation
#
# Often you cannot run a policy in the environment. `fitted_q` estimates its discounted return
# from the recorded transitions. It needs features of observations and actions. These are random
# Fourier features.

# %%
waves = np.random.default_rng(0)
directions, phases = waves.normal(size=(4, 200)), waves.uniform(0, 2 * np.pi, 200)


def heights(observations, actions):
    pairs = np.concatenate([observations / [1, 1, 3], actions / 2], axis=1)
    return np.cos(pairs @ directions + phases)


features = rlds.evaluation.Sampled(heights)
policies = {"TD3+BC": learned, "clone": cloned, "controller": swing_up}
estimates, truth = {}, {}
for name, policy in policies.items():
    q = rlds.evaluation.fitted_q(
        data,
        rlds.evaluation.DeterministicPolicy(policy),
        features=features,
        gamma=GAMMA,
        ridge=1e-6,
    )
    estimates[name], truth[name] = q.estimate(), play(policy, GAMMA)
print(estimates["TD3+BC"])
print(rlds.evaluation.compare(truth, estimates, k=[1]))

# %%
figure, axis = plt.subplots(figsize=(7, 2.6))
for row, (name, estimate) in enumerate(estimates.items()):
    interval = estimate.interval(num_samples=200)
    axis.plot([interval.lower, interval.upper], [row, row], color="C0", lw=6, alpha=0.4)
    axis.plot(estimate.value, row, "o", color="C0", label="estimated" * (row == 0))
    axis.plot(truth[name], row, "k|", ms=16, label="played" * (row == 0))
axis.set(title="Discounted return, and 95 % intervals", ylim=(2.5, -0.5))
axis.set_yticks(range(len(estimates)), estimates)
axis.legend(frameon=True)
plt.show()

# %% [markdown]
# *The estimates rank the policies correctly, from data alone. An interval covers the variation of
# the estimate between samples of episodes. It does not cover the error of the features where data
# is sparse.*
#
# The script `examples/offline_rl_td3_bc.py` does the same in NumPy.
