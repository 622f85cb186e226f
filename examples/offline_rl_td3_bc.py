"""Offline reinforcement learning: a policy that is better than the data, which is all it has seen.

    python examples/offline_rl_td3_bc.py [--output DIRECTORY]

Half of the recorded episodes are those of somebody who can swing up a pendulum, in the other half
actions are random. A clone of that (behaviour cloning) is as bad as the mixture. TD3+BC (Fujimoto
and Gu, 2021) learns from the same transitions, by their rewards, which actions were the good ones,
and stays close to the recorded ones. At the end, `rlds.evaluation` says from the data alone what
the policies are worth, and the pendulum says whether that is so.

It takes a minute. TensorFlow is not loaded.
"""

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "agg")  # No windows to draw in.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # For small networks, threads cost more.

import numpy as np
import pendulum
from command_line import conclude, console, parse
from imitation_from_few_demonstrations import clone
from matplotlib import pyplot
from networks import Adam, Network
from rich.progress import track
from rich.table import Table

import rlds.evaluation
import rlds.feeds
from rlds.normalization import normalize

GAMMA = 0.98
# The mean return in other runs of this script.
EXPECTED = {
    "the data": -700,
    "TD3+BC": -190,
    "behaviour cloning": -1070,
    "controller": -150,
    "random actions": -1190,
}


class Learner:
    """TD3+BC: an actor that follows two critics, but not far from the data.

    Args:
      observation_size: The size of an observation.
      action_size: The size of an action, whose elements are between -1 and 1.
      alpha: The weight of the critics. With 0, it is behaviour cloning.
      seed: Of the networks, and of the noise.
    """

    def __init__(self, observation_size: int, action_size: int, alpha: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._rng, self._alpha, self._count = rng, alpha, 0
        sizes = [observation_size, 128, 128, action_size]
        pair_sizes = [observation_size + action_size, 128, 128, 1]
        self.actor = Network(sizes, rng, bounded=True)
        self.critics = [Network(pair_sizes, rng) for _ in range(2)]
        self._optimizers = [Adam(network) for network in (self.actor, *self.critics)]
        # What the critics are told of the next step changes slowly, so that they can follow.
        self._slow_actor = self.actor.copy()
        self._slow_critics = [critic.copy() for critic in self.critics]

    def update(self, batch: Mapping[str, np.ndarray]) -> None:
        """Learns from a batch of transitions."""
        self._update_critics(batch)
        self._count += 1
        if self._count % 2 == 0:
            self._update_actor(batch)
            slow = [self._slow_actor, *self._slow_critics]
            for follower, network in zip(slow, [self.actor, *self.critics], strict=True):
                follower.parameters += 0.02 * (network.parameters - follower.parameters)

    def _update_critics(self, batch: Mapping[str, np.ndarray]) -> None:
        """The value of a step is its reward, and the discounted value of the next one."""
        action, next_observation = batch["action"], batch["next_observation"]
        noise = np.clip(self._rng.normal(0.0, 0.2, action.shape), -0.5, 0.5)
        next_action = np.clip(self._slow_actor(next_observation) + noise, -1.0, 1.0)
        after = joined(next_observation, next_action)
        next_value = np.minimum(*(critic(after) for critic in self._slow_critics))
        # `discount` is 0 after a terminal state, but not where an episode was truncated.
        target = batch["reward"][:, None] + batch["discount"][:, None] * next_value
        before = joined(batch["observation"], action)
        for critic, optimizer in zip(self.critics, self._optimizers[1:], strict=True):
            values = critic.forward(before)
            error = values[-1] - target.astype(np.float32)
            gradient, _ = critic.backward(values, 2.0 * error / len(error))
            optimizer.step(gradient)

    def _update_actor(self, batch: Mapping[str, np.ndarray]) -> None:
        """Better actions in the eyes of the first critic, close to those of the data."""
        observation, size = batch["observation"], len(batch["action"])
        values = self.actor.forward(observation)
        critic_values = self.critics[0].forward(joined(observation, values[-1]))
        scale = self._alpha / np.abs(critic_values[-1]).mean()
        _, slope = self.critics[0].backward(
            critic_values, np.full_like(critic_values[-1], -scale / size)
        )
        slope_of_action = slope[:, observation.shape[1] :]
        slope_of_action += 2.0 * (values[-1] - batch["action"]) / batch["action"].size
        gradient, _ = self.actor.backward(values, slope_of_action)
        self._optimizers[0].step(gradient)


def joined(observation: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Returns the input of a critic: observation and action, concatenated."""
    return np.concatenate([observation, action], axis=1, dtype=np.float32)


def transitions(table: rlds.feeds.Table, seed: int) -> rlds.feeds.Feed:
    """Batches of transitions, in which all numbers are small."""
    statistics = table.compute_statistics(["observation"])
    samples = table.transitions(gamma=GAMMA).normalize(statistics, fields=["observation"])

    def scaled(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        batch["action"] = batch["action"] / pendulum.LIMIT
        batch["reward"] = batch["reward"] / 8.0  # It is -16 at worst.
        return batch

    return rlds.feeds.Feed(samples, batch_size=256, seed=seed, transform=scaled)


def learn(
    table: rlds.feeds.Table,
    updates: int,
    seed: int,
    alpha: float = 10.0,
    look: Callable[[int, pendulum.Agent], None] | None = None,
) -> pendulum.Agent:
    """Learns a policy from recorded transitions.

    Args:
      table: The recorded data.
      updates: The number of training batches.
      seed: Of everything random.
      alpha: See `Learner`.
      look: Called now and then with the number of updates, and with what plays by then.
    """
    statistics = table.compute_statistics(["observation"])
    learner = Learner(3, 1, alpha, seed)

    def act(observation: np.ndarray) -> np.ndarray:
        return pendulum.LIMIT * learner.actor(normalize(observation, statistics["observation"]))

    counts = track(range(1, updates + 1), "Learning", console=console)
    for count, batch in zip(counts, transitions(table, seed), strict=False):
        learner.update(batch)
        if look is not None and count % max(1, updates // 10) == 0:
            look(count, act)
    return act


# --------------------------------------------------------------------------------------------------
# What the policies are worth, from the data alone.


_rng = np.random.default_rng(0)
_DIRECTIONS, _PHASES = _rng.normal(size=(4, 200)), _rng.uniform(0.0, 2.0 * np.pi, 200)


def waves(observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Features of a Q-function: the heights of waves through the space of pairs."""
    pairs = np.concatenate([observations / [1.0, 1.0, 3.0], actions / pendulum.LIMIT], axis=1)
    return np.cos(pairs @ _DIRECTIONS + _PHASES)


def evaluate(
    table: rlds.feeds.Table, policies: Mapping[str, rlds.evaluation.Policy]
) -> dict[str, rlds.evaluation.Estimate]:
    """The discounted return of each policy, by a Q-function that is fitted to the data."""
    data = rlds.evaluation.collect(table)
    features = rlds.evaluation.Sampled(waves)
    return {
        name: rlds.evaluation.fitted_q(
            data, policy, features=features, gamma=GAMMA, ridge=1e-6
        ).estimate()
        for name, policy in policies.items()
    }


# --------------------------------------------------------------------------------------------------


def show(title: str, columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> None:
    """Prints a table."""
    grid = Table("", title=title, title_justify="left")
    for column in columns:
        grid.add_column(column, justify="right")
    for name, cells in rows.items():
        grid.add_row(name, *cells)
    console.print(grid)


def draw(
    curve: dict[int, float],
    lines: dict[str, float],
    estimates: Mapping[str, rlds.evaluation.Estimate],
    truth: Mapping[str, float],
    path: Path,
) -> None:
    """Writes two plots as a PNG file: returns while learning, and estimates against roll-outs."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    left.plot(list(curve), list(curve.values()), "o-", color="#34608d", label="TD3+BC")
    for (name, value), style in zip(lines.items(), itertools.cycle(["--", ":", "-."])):
        left.axhline(value, color="0.4", linestyle=style, label=name)
    left.set(title="Learning", xlabel="updates", ylabel="return of an episode")
    left.legend()
    values = [*truth.values(), *(estimate.value for estimate in estimates.values())]
    right.plot([min(values), max(values)], [min(values), max(values)], color="0.8")
    for name, estimate in estimates.items():
        right.plot(truth[name], estimate.value, "o", label=name)
    right.set(title="Off-policy estimates", xlabel="discounted return, played")
    right.set(ylabel="discounted return, estimated")
    right.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    """Records, learns, evaluates, and prints what came out."""
    assert __doc__
    arguments = parse(__doc__, "offline-rl", updates=(5000, "training batches"))
    rng = np.random.default_rng(arguments.seed)
    env = pendulum.make()
    at_random = pendulum.at_random(rng)
    logs, data = arguments.output / "logs", arguments.output / "data"
    recorders = [pendulum.unsteady(rng), at_random] * 25
    seeds = range(1000 * arguments.seed, 1000 * arguments.seed + len(recorders))
    recorded = pendulum.record(env, logs, recorders, seeds)
    rlds.feeds.materialise(logs, data, progress=False)
    table = rlds.feeds.open(data, progress=False)
    curve: dict[int, float] = {}

    def look(count: int, agent: pendulum.Agent) -> None:
        curve[count] = pendulum.play(env, agent, pendulum.TESTS[:10]).mean()

    learned = learn(table, arguments.updates, arguments.seed, look=look)
    cloned = clone(table.select(["observation", "action"]), 1500, arguments.seed)
    agents = {
        "TD3+BC": learned,
        "behaviour cloning": cloned,
        "controller": pendulum.swing_up,
        "random actions": at_random,
    }
    returns = {
        name: pendulum.play(env, agent, pendulum.TESTS).mean() for name, agent in agents.items()
    }
    show(
        "Return of an episode",
        ["return", "expected, about"],
        {
            name: [f"{value:.0f}", str(EXPECTED[name])]
            for name, value in {"the data": recorded.mean(), **returns}.items()
        },
    )

    limit = [pendulum.LIMIT]
    policies: dict[str, rlds.evaluation.Policy] = {
        name: rlds.evaluation.DeterministicPolicy(agent) for name, agent in agents.items()
    }
    policies["random actions"] = rlds.evaluation.UniformPolicy(np.negative(limit), limit)
    estimates = evaluate(table, policies)
    # From where the recorded episodes began, as that is what is estimated.
    truth = {name: pendulum.play(env, agents[name], seeds, GAMMA).mean() for name in policies}
    rows = {}
    for name, estimate in estimates.items():
        interval = estimate.interval(num_samples=200)
        bounds = f"{interval.lower:.0f} to {interval.upper:.0f}"
        rows[name] = [f"{estimate.value:.0f}", bounds, f"{truth[name]:.0f}"]
    title = f"Discounted return, {GAMMA} a step"
    show(title, ["estimated from the data", "95 % interval", "played"], rows)
    console.print(
        "The intervals cover the choice of episodes. They do not cover the errors of the "
        "Q-functions where there is no data."
    )

    picture = arguments.output / "policies.png"
    draw(
        curve,
        {"controller": returns["controller"], "the data": recorded.mean()}
        | {"behaviour cloning": returns["behaviour cloning"]},
        estimates,
        truth,
        picture,
    )
    learned_return, cloned_return = returns["TD3+BC"], returns["behaviour cloning"]
    claims = {
        "TD3+BC gives more than -600": learned_return > -600,
        "that is 200 more than cloning": learned_return > cloned_return + 200,
        "the off-policy estimates agree": estimates["TD3+BC"].value
        > estimates["behaviour cloning"].value,
    }
    conclude(claims, picture)


if __name__ == "__main__":
    main()
