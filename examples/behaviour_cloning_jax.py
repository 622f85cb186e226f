"""Behaviour cloning in JAX: a network learns the action for an observation.

    make quickstart
    .venv/bin/pip install jax
    .venv/bin/python examples/behaviour_cloning_jax.py out/quickstart-*/datasets/*/1.0.0

It takes any log or dataset whose observations and actions are vectors. TensorFlow is not loaded.
"""

import argparse
from itertools import pairwise

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

import rlds.feeds
from rlds.normalization import normalize

FIELDS = ["observation", "action"]

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("data", help="a log or a dataset; `make quickstart` makes one, in out/")
parser.add_argument("--epochs", type=int, default=20, help="passes over the data")
parser.add_argument("--play", default="InvertedDoublePendulum-v5", help="environment to play in")
arguments = parser.parse_args()
try:
    table = rlds.feeds.open(arguments.data, fields=FIELDS)
except FileNotFoundError as missing:
    parser.error(f"{missing} `make quickstart` makes out/quickstart-*/datasets/*/1.0.0")

statistics = table.compute_statistics(FIELDS)
# The last step of an episode has no action.
samples = table.steps(only_real=True).normalize(statistics, fields=["observation"], floor=1e-3)
feed = rlds.feeds.Feed(samples, batch_size=256, seed=0, epochs=arguments.epochs)
print(feed.explain())


@jax.jit
def policy(parameters, observation):
    """The action for a normalized observation."""
    for weights, bias in parameters[:-1]:
        observation = jax.nn.relu(observation @ weights + bias)
    weights, bias = parameters[-1]
    return observation @ weights + bias


@jax.jit
def update(parameters, velocity, observation, action):
    """Takes a step of gradient descent with momentum."""

    def loss_of(parameters):
        return jnp.mean((policy(parameters, observation) - action) ** 2)

    loss, gradient = jax.value_and_grad(loss_of)(parameters)
    velocity = jax.tree.map(lambda v, g: 0.9 * v - 0.05 * g, velocity, gradient)
    return jax.tree.map(jnp.add, parameters, velocity), velocity, loss


rng = np.random.default_rng(0)
sizes = [statistics["observation"].mean.size, 128, 128, statistics["action"].mean.size]
parameters = [(rng.normal(0, n**-0.5, (n, m)), np.zeros(m)) for n, m in pairwise(sizes)]
parameters = jax.device_put(parameters)
velocity = jax.tree.map(jnp.zeros_like, parameters)
losses = []
for count, batch in enumerate(feed, 1):
    observation, action = jax.device_put([batch[name] for name in FIELDS])
    parameters, velocity, loss = update(parameters, velocity, observation, action)
    losses.append(loss)
    if count * 10 // len(feed) > (count - 1) * 10 // len(feed):
        print(f"batch {count} of {len(feed)}: loss {np.mean(losses):.4f}")
        losses = []

env = gymnasium.make(arguments.play)
(observation, _), total, over = env.reset(seed=0), 0.0, False
while not over:
    observation = normalize(observation, statistics["observation"], floor=1e-3)
    action = np.asarray(policy(parameters, observation))
    observation, reward, terminated, truncated, _ = env.step(action)
    total, over = total + reward, terminated or truncated
print(f"return of an episode: {total:.1f}")
