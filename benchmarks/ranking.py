"""Measures how well `rlds.evaluation.rank` orders checkpoints by recorded data alone.

    python benchmarks/ranking.py [--seeds 71:76]
    python benchmarks/ranking.py --seeds 1:3 --fit      # Prints weights for rlds.evaluation.rank.

docs/evaluation.md says what was expected before the first run. Five simulators, each with thirty
checkpoints of cloned policies; their true returns are those of 300 episodes.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "support"))
import cloning
import skilled_data

import rlds.evaluation
from rlds.evaluation import CategoricalPolicy, EvaluationSet, GaussianPolicy, Policy, Sampled
from rlds.evaluation.estimates import student_quantile
from rlds.evaluation.ranking import WEIGHTS

Array = np.ndarray
Episode = tuple[Array, Array]  # Observations and actions.

_WORLDS = 300  # Episodes for the true return.
_LOGS = 60  # Episodes of the policy that acted.
_UPDATES = (50, 150, 500, 1500)
_FEATURES, _LENGTH = 100, 0.5
_SHRINKAGE = 0.1  # Of fitted weights, in units of the mean square of a relative rank.
_ALONE, _CROSS_FITTED, _DEFAULT = (
    "`action_error`",
    "all, weights of the other four",
    "all, default weights",
)


class Simulator(NamedTuple):
    """A task in which policies act; arrays have a row for each world.

    Attributes:
      reset: Returns states at the beginning.
      step: Returns the next states, the rewards, and whether each is terminal.
      observe: Returns the observations of states.
      limit: The steps after which episodes are cut.
      gamma: The discount of each step.
      demonstrate: Returns what a person of some clumsiness does in states; None for those of
        tests/support/skilled_data.py.
      num_actions: The number of actions; None for vectors.
    """

    reset: Callable[[np.random.Generator, int], Array]
    step: Callable[[Array, Array], tuple[Array, Array, Array]]
    observe: Callable[[Array], Array]
    limit: int
    gamma: float
    demonstrate: Callable[[Array, float, np.random.Generator], Array] | None = None
    num_actions: int | None = None


def _of_cloning(task: str, limit: int) -> Simulator:
    world = cloning.WORLDS[task]

    def step(states: Array, actions: Array) -> tuple[Array, Array, Array]:
        after, done = world.step(states, actions)
        return after, done.astype(float), done

    return Simulator(world.reset, step, lambda states: states, limit, 0.98)


# Pendulum-v1 of Gymnasium: the angle from upright, and its velocity.


def _pendulum_reset(rng: np.random.Generator, count: int) -> Array:
    return rng.uniform([-np.pi, -1], [np.pi, 1], (count, 2))


def _wrapped(angles: Array) -> Array:
    return (angles + np.pi) % (2 * np.pi) - np.pi


def _pendulum_step(states: Array, actions: Array) -> tuple[Array, Array, Array]:
    (angle, speed), torque = states.T, np.clip(actions[:, 0], -2, 2)
    reward = -(_wrapped(angle) ** 2 + 0.1 * speed**2 + 0.001 * torque**2)
    speed = np.clip(speed + 0.05 * (15 * np.sin(angle) + 3 * torque), -8, 8)
    after = np.stack([angle + 0.05 * speed, speed], axis=1)
    return after, reward, np.zeros(len(states), bool)


def _pendulum_observe(states: Array) -> Array:
    angle, speed = states.T
    return np.stack([np.cos(angle), np.sin(angle), speed], axis=1)


def _pendulum_demonstrate(states: Array, clumsy: float, rng: np.random.Generator) -> Array:
    """It gains the energy of standing upright, and then holds; less skilled people tremble."""
    angle, speed = _wrapped(states[:, 0]), states[:, 1]
    energy = speed**2 / 30 + np.cos(angle) - 1
    pump, hold = -2 * np.sign(speed * energy), -10 * angle - 2 * speed
    torque = np.clip(np.where(np.abs(angle) < 0.6, hold, pump), -2, 2)
    return (torque + (0.2 + 1.5 * clumsy) * rng.normal(size=len(states)))[:, None]


# Acrobot-v1 of Gymnasium: two angles from hanging, and their velocities.


def _acrobot_reset(rng: np.random.Generator, count: int) -> Array:
    return rng.uniform(-0.1, 0.1, (count, 4))


def _acrobot_slopes(states: Array, torque: Array) -> Array:
    first, second, speed, turn = states.T
    outer = 0.25 + 0.5 * np.cos(second) + 1
    inner = 0.25 + 1.25 + np.cos(second) + 2
    pull = 0.5 * 9.8 * np.sin(first + second)
    load = pull + 1.5 * 9.8 * np.sin(first)
    load -= (0.5 * turn**2 + turn * speed) * np.sin(second)
    gain = torque + outer / inner * load - 0.5 * speed**2 * np.sin(second) - pull
    gain /= 1.25 - outer**2 / inner
    return np.stack([speed, turn, -(outer * gain + load) / inner, gain], axis=1)


def _acrobot_step(states: Array, actions: Array) -> tuple[Array, Array, Array]:
    slopes = functools.partial(_acrobot_slopes, torque=actions - 1.0)
    one = slopes(states)
    two = slopes(states + 0.1 * one)
    three = slopes(states + 0.1 * two)
    after = states + 0.2 / 6 * (one + 2 * two + 2 * three + slopes(states + 0.2 * three))
    after[:, :2] = _wrapped(after[:, :2])
    after[:, 2:] = np.clip(after[:, 2:], *np.pi * np.array([[-4, -9], [4, 9]]))
    done = -np.cos(after[:, 0]) - np.cos(after[:, :2].sum(axis=1)) > 1
    return after, np.where(done, 0.0, -1.0), done


def _acrobot_observe(states: Array) -> Array:
    angles = [function(states[:, column]) for column in (0, 1) for function in (np.cos, np.sin)]
    return np.concatenate([np.stack(angles, axis=1), states[:, 2:]], axis=1)


def _acrobot_demonstrate(states: Array, clumsy: float, rng: np.random.Generator) -> Array:
    """It pushes with the swing; less skilled people push at random more often."""
    action, count = np.where(states[:, 2] > 0, 0, 2), len(states)
    is_random = rng.random(count) < 0.05 + 0.35 * clumsy
    return np.where(is_random, rng.integers(0, 3, count), action)


SIMULATORS = {
    "mover": _of_cloning("mover", 120),
    "two joints": _of_cloning("two joints", 60),
    "mass": _of_cloning("mass", 120),
    "pendulum": Simulator(
        _pendulum_reset, _pendulum_step, _pendulum_observe, 200, 0.98, _pendulum_demonstrate
    ),
    "acrobot": Simulator(
        _acrobot_reset, _acrobot_step, _acrobot_observe, 300, 0.99, _acrobot_demonstrate, 3
    ),
}


def play(
    simulator: Simulator,
    act: Callable[[Array, Array], tuple[Array, Array]],
    num_episodes: int,
    rng: np.random.Generator,
) -> tuple[float, EvaluationSet]:
    """Returns the mean discounted return of some episodes, and the episodes.

    Args:
      simulator: The task.
      act: Returns the actions in states with observations, and their log-probabilities.
      num_episodes: The number of episodes.
      rng: Of the states at the beginning.
    """
    states = simulator.reset(rng, num_episodes)
    observations, columns = [simulator.observe(states)], []
    is_running, is_terminal = np.ones(num_episodes, bool), np.zeros(num_episodes, bool)
    while len(columns) < simulator.limit and is_running.any():
        actions, log_probs = act(states, observations[-1])
        states, rewards, done = simulator.step(states, actions)
        columns.append((is_running.copy(), actions, rewards, log_probs))
        observations.append(simulator.observe(states))
        is_terminal |= is_running & done
        is_running &= ~done
    is_step, actions, rewards, log_probs = (
        np.stack(it, axis=1) for it in zip(*columns, strict=True)
    )
    lengths = is_step.sum(axis=1)
    is_seen = np.arange(len(observations)) <= lengths[:, None]
    total = (rewards * is_step * simulator.gamma ** np.arange(len(columns))).sum(axis=1).mean()
    episodes = EvaluationSet(
        num_transitions=lengths,
        is_terminal=is_terminal,
        final_observation_known=np.ones(num_episodes, bool),
        observations=np.stack(observations, axis=1)[is_seen],
        actions=actions[is_step],
        rewards=rewards[is_step],
        log_probs=log_probs[is_step],
    )
    return float(total), episodes


def _acting(
    policy: Policy, rng: np.random.Generator
) -> Callable[[Array, Array], tuple[Array, Array]]:
    def act(states: Array, observations: Array) -> tuple[Array, Array]:
        del states
        actions = policy.sample(observations, rng)
        return actions, policy.log_prob(observations, actions)

    return act


def demonstrations(task: str, seed: int) -> dict[str, list[Episode]]:
    """Returns twenty episodes of each skill."""
    simulator = SIMULATORS[task]
    demonstrate = simulator.demonstrate
    if demonstrate is None:
        return {
            skill: [(it.state[: len(it.action)], it.action) for it in episodes if len(it.action)]
            for skill, episodes in skilled_data.make_demonstrations(task, seed).items()
        }
    by_skill = {}
    for skill, clumsy in skilled_data.SKILLS.items():
        rng = np.random.default_rng([seed, *task.encode(), *skill.encode()])
        _, data = play(
            simulator,
            lambda states, _: (demonstrate(states, clumsy, rng), np.zeros(len(states))),  # noqa: B023
            20,
            rng,
        )
        observations = data.observations_at(data.rows)
        by_skill[skill] = [
            (observations[first:end], data.actions[first:end])
            for first, end in itertools.pairwise(data.splits)
        ]
    return by_skill


def as_set(episodes: Sequence[Episode]) -> EvaluationSet:
    """Returns demonstrations as data; they tell no rewards."""
    unknown = np.zeros(len(episodes), bool)
    observations, actions = (np.concatenate(it) for it in zip(*episodes, strict=True))
    lengths = [len(actions) for _, actions in episodes]
    return EvaluationSet(lengths, unknown, unknown, observations, actions, np.zeros(sum(lengths)))


class Clone(NamedTuple):
    """A cloned policy.

    Attributes:
      act: Returns actions for observations; probabilities, where actions are numbered.
      std: The deviation of what was done from it.
      is_discrete: Whether actions are numbered.
    """

    act: Callable[[Array], Array]
    std: Array
    is_discrete: bool

    def policy(
        self,
        *,
        noise: float = 1.0,
        see: Callable[[Array], Array] = lambda observations: observations,
        change: Callable[[Array], Array] = lambda actions: actions,
    ) -> Policy:
        """Returns the policy, maybe with something wrong in what it sees or does."""

        def action_of(observations: Array) -> Array:
            return change(self.act(see(observations)))

        if self.is_discrete:
            return CategoricalPolicy(
                lambda observations: np.log(np.maximum(action_of(observations), 0.01)) / noise
            )
        return GaussianPolicy(
            lambda observations: (action_of(observations), np.log(noise * self.std))
        )


def clones(
    simulator: Simulator,
    episodes: Sequence[Episode],
    rng: np.random.Generator,
    updates: Sequence[int],
) -> list[Clone]:
    """Returns the policy after each of some numbers of updates."""
    observations, actions = (np.concatenate(it) for it in zip(*episodes, strict=True))
    is_discrete = simulator.num_actions is not None
    if is_discrete:
        actions = np.eye(simulator.num_actions)[actions]
    policies = []
    for act in cloning.cloned(observations, actions, rng, updates):
        std = (act(observations) - actions).std(axis=0)
        policies.append(Clone(act, np.maximum(std, 1e-3 * actions.std(axis=0)), is_discrete))
    return policies


def checkpoints(task: str, by_skill: Mapping[str, list[Episode]], seed: int) -> dict[str, Policy]:
    """Returns thirty checkpoints: amounts of data, numbers of updates, noise, and wrong ones."""
    simulator, rng = SIMULATORS[task], np.random.default_rng([seed, 3])
    cloned = functools.partial(clones, simulator, rng=rng)
    every = [episode for each in by_skill.values() for episode in each]
    mixed = [every[count] for count in rng.permutation(len(every))]
    sets = {f"{count} episodes": (mixed[:count], _UPDATES) for count in (4, 15, len(mixed))}
    sets |= {f"only {skill}": (it, _UPDATES[2:]) for skill, it in by_skill.items()}
    halves = [(seen[: len(seen) // 2], done[: len(done) // 2]) for seen, done in mixed]
    sets["first halves"] = (halves, _UPDATES[2:3])
    policies, full = {}, None
    for name, (episodes, updates) in sets.items():
        for count, clone in zip(updates, cloned(episodes, updates=updates), strict=True):
            policies[f"{name}, {count} updates"] = clone.policy()
            full = clone if len(episodes) == len(mixed) and count == _UPDATES[-1] else full
    policies |= {f"noise x {noise}": full.policy(noise=noise) for noise in (0.1, 0.5, 2, 4)}
    shift = 0.2 * np.concatenate([seen for seen, _ in mixed]).std(axis=0)
    is_seen = np.arange(len(shift)) != 1
    policies["an input is 0"] = full.policy(see=lambda seen: seen * is_seen)
    policies["inputs x 1.2"] = full.policy(see=lambda seen: 1.2 * seen)
    policies["inputs shifted"] = full.policy(see=lambda seen: seen + shift)
    return policies | {
        name: full.policy(change=change) for name, change in _changes(mixed, simulator).items()
    }


def _changes(
    episodes: Sequence[Episode], simulator: Simulator
) -> dict[str, Callable[[Array], Array]]:
    """Faults of actions, by name."""
    if simulator.num_actions is not None:
        return {
            "an action less": lambda chances: chances * [1, 1, 0.5],
            "an action more": lambda chances: chances + np.array([0.3, 0, 0]),
            "actions swapped": lambda chances: chances[:, [1, 0, 2]],
            "actions at random": lambda chances: (chances + 1 / 3) / 2,
        }
    actions = np.concatenate([done for _, done in episodes])
    signs = np.where(np.arange(actions.shape[1]) == actions.shape[1] - 1, -1, 1)
    return {
        "actions x 0.6": lambda done: 0.6 * done,
        "actions x 1.8": lambda done: 1.8 * done,
        "actions shifted": lambda done: done + 0.3 * actions.std(axis=0),
        "a sign changed": lambda done: signs * done,
    }


def random_features(data: EvaluationSet, num_actions: int | None) -> Sampled:
    """Returns random cosines of standardised numbers (Rahimi and Recht, 2007)."""
    columns = [np.asarray(data.observations_at(data.rows))]
    if num_actions is None:
        columns.append(data.actions)
    rows = np.concatenate(columns, axis=1)
    center, scale, rng = rows.mean(axis=0), rows.std(axis=0) + 1e-9, np.random.default_rng(0)
    size = (rows.shape[1], _FEATURES)
    directions = rng.normal(size=size) / (_LENGTH * rows.shape[1] ** 0.5 * scale[:, None])
    phases = rng.uniform(0, 2 * np.pi, _FEATURES) - center @ directions

    def features(observations: Array, actions: Array) -> Array:
        inputs = [observations] if num_actions is not None else [observations, actions]
        waves = np.cos(np.concatenate(inputs, axis=1) @ directions + phases)
        cosines = np.concatenate([np.ones((len(waves), 1)), waves], axis=1)
        if num_actions is None:
            return cosines
        chosen = np.eye(num_actions)[np.asarray(actions, int)]
        return (chosen[:, :, None] * cosines[:, None]).reshape(len(cosines), -1)

    return Sampled(features, num_samples=4)


class Measured(NamedTuple):
    """Thirty checkpoints of one simulator and one seed.

    Attributes:
      returns: The true return of each, `[30]`.
      ranks: The rank of each by each score, 0 to 1, NaN for none, `[30, scores]`.
    """

    returns: Array
    ranks: Array


def measured(job: tuple[str, int]) -> Measured:
    """Makes checkpoints, scores them by recorded data, and lets them act."""
    task, seed = job
    simulator, rng = SIMULATORS[task], np.random.default_rng([seed, 4])
    by_skill = demonstrations(task, seed)
    trained = [episode for each in by_skill.values() for episode in each]
    held_out = [it for each in demonstrations(task, seed + 10_000).values() for it in each]
    policies = checkpoints(task, by_skill, seed)
    [deployed] = clones(simulator, trained, rng, _UPDATES[1:2])
    behaviour = deployed.policy(noise=1.5)
    _, logs = play(simulator, _acting(behaviour, rng), _LOGS, rng)
    ranking = rlds.evaluation.rank(
        as_set(held_out),
        policies,
        training=np.concatenate([observations for observations, _ in trained]),
        logs=logs,
        features=random_features(logs, simulator.num_actions),
        gamma=simulator.gamma,
        behaviour=behaviour,
    )
    returns, ranks = [], []
    for one in ranking.policies:
        acting = _acting(policies[one.name], np.random.default_rng([seed, 5]))
        returns.append(play(simulator, acting, _WORLDS, np.random.default_rng([seed, 6]))[0])
        ranks.append([one.relative_ranks.get(score, np.nan) for score in WEIGHTS])
    return Measured(np.array(returns), np.array(ranks))


def _combined(ranks: Array, weights: Array) -> Array:
    """The values that `rank` orders by; NaN for none."""
    counts = (weights * ~np.isnan(ranks)).sum(axis=1)
    counts[counts == 0] = np.nan
    return (np.nan_to_num(ranks) * weights).sum(axis=1) / counts


def fitted(data: Sequence[Measured]) -> Array:
    """Returns weights, none below 0, whose sums of ranks are nearest to the ranks of returns."""
    inputs = np.concatenate([np.nan_to_num(it.ranks - 0.5) for it in data])
    target_ranks = np.concatenate([it.returns.argsort().argsort() / len(it.returns) for it in data])
    matrix = inputs.T @ inputs / len(inputs)
    matrix += _SHRINKAGE * np.diag(matrix).mean() * np.eye(len(matrix))
    right, weights = (
        inputs.T @ (target_ranks - target_ranks.mean()) / len(inputs),
        np.zeros(len(matrix)),
    )
    for _ in range(10_000):  # Projected gradient descent.
        weights = np.maximum(weights - (matrix @ weights - right) / np.trace(matrix), 0)
    return weights / weights.sum()


def correlation(values: Array, returns: Array) -> float:
    """Returns Spearman's correlation, of the policies that have a value."""
    indices = np.flatnonzero(~np.isnan(values))
    if len(indices) < 2:
        return np.nan
    comparison = rlds.evaluation.compare(returns[indices], values[indices], k=(1,), num_samples=1)
    return comparison.rank_correlation.value


def _lost(values: Array, returns: Array) -> float:
    """The return that is lost with the first policy, as a share of the range of all returns."""
    if np.isnan(values).all():
        return np.nan
    return float((returns.max() - returns[np.nanargmax(values)]) / np.ptp(returns))


def _cell(values: Array) -> str:
    values = values[~np.isnan(values)]
    if len(values) < 2:
        return " ".join(f"{value:.2f}" for value in values)
    half = student_quantile(0.95, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return f"{values.mean():.2f} ± {half:.2f}"


def report(measurements: Mapping[str, Sequence[Measured]]) -> None:
    """Prints what each score is worth, and all with weights of the other simulators."""
    orders = {f"`{score}`": row for score, row in zip(WEIGHTS, np.eye(len(WEIGHTS)), strict=True)}
    orders |= {_CROSS_FITTED: None, _DEFAULT: np.array([*WEIGHTS.values()])}
    correlations, losses = ({name: {} for name in orders} for _ in range(2))
    for task, seeds in measurements.items():
        training = [it for other, each in measurements.items() if other != task for it in each]
        for name, order in orders.items():
            weights = fitted(training) if order is None else order
            values = [(_combined(it.ranks, weights), it.returns) for it in seeds]
            correlations[name][task] = np.array([correlation(*it) for it in values])
            losses[name][task] = np.array([_lost(*it) for it in values])
    ours = correlations[_CROSS_FITTED]
    for single in (_ALONE, "`sampled_error`"):
        correlations[f"{_CROSS_FITTED}, minus {single}"] = {
            task: ours[task] - correlations[single][task] for task in measurements
        }
    _print("Spearman's correlation", correlations)
    _print("lost return", {name: losses[name] for name in (_ALONE, _CROSS_FITTED)})


def _print(title: str, rows: Mapping[str, Mapping[str, Array]]) -> None:
    tasks = next(iter(rows.values()))
    print(f"\n| {title} | {' | '.join(tasks)} | all |\n|---|{'--:|' * (len(tasks) + 1)}")
    for name, by_task in rows.items():
        cells = [*by_task.values(), np.mean([*by_task.values()], axis=0)]
        print(f"| {name} | {' | '.join(map(_cell, cells))} |")


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="71:76", help="from which to before which")
    parser.add_argument("--fit", action="store_true", help="print weights of all simulators")
    options = parser.parse_args()
    seeds = range(*map(int, options.seeds.split(":")))
    with ProcessPoolExecutor(2) as pool:
        done = iter(pool.map(measured, [(task, seed) for task in SIMULATORS for seed in seeds]))
        measurements = {task: [next(done) for _ in seeds] for task in SIMULATORS}
    report(measurements)
    if options.fit:
        print(
            dict(
                zip(
                    WEIGHTS,
                    fitted(it for each in measurements.values() for it in each).round(2).tolist(),
                )
            )
        )


if __name__ == "__main__":
    main()
