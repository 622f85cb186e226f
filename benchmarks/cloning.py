"""Measures whether policies that are cloned from the better half of demonstrations are better.

    python benchmarks/cloning.py [--seeds 61:81]

docs/audit.md says what was expected before the first run. Demonstrations are those of
tests/support/skilled_data.py, which tells of each how skilled the demonstrator was; the score by
which a half is chosen is that which tells experts best in the other tasks.
"""

import argparse
import itertools
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "support"))
import audited_data
import auditing
import skilled_data

import rlds.sources
from rlds.auditing import audit

# A policy: two layers of tanh, which is fitted to standardised numbers by Adam.
_UNITS, _BATCH, _UPDATES, _RATE = 64, 256, 3_000, 1e-3
_WORLDS = 200  # In which each policy is tried, once.
_SLOWER = 1.5  # How many times as many rows as the median of experts a success may take.
SETS = ("all", "better half", "random half", "most skilled half")

Array = np.ndarray
Policy = Callable[[Array], Array]


class World(NamedTuple):
    """A task in which policies act; all arrays have a row for each world.

    Attributes:
      reset: Returns states at the beginning.
      step: Returns the next states; whether each is done.
    """

    reset: Callable[[np.random.Generator, int], Array]
    step: Callable[[Array, Array], tuple[Array, Array]]


def _mover_reset(rng: np.random.Generator, count: int) -> Array:
    position = [-1.0, 0] + 0.1 * rng.normal(size=(count, 2))
    return np.concatenate([position, np.tile([1.0, 0], (count, 1))], axis=1)


def _mover_step(states: Array, actions: Array) -> tuple[Array, Array]:
    after = states.copy()
    after[:, :2] += actions / skilled_data.RATE
    return after, np.linalg.norm(after[:, :2] - after[:, 2:4], axis=1) < 0.12


def _joints_reset(rng: np.random.Generator, count: int) -> Array:
    joints = rng.uniform([-0.5, 0], [1.5, 2], (count, 2))
    return np.concatenate([joints, rng.uniform(0.4, 1.2, (count, 2))], axis=1)


def _joints_step(states: Array, actions: Array) -> tuple[Array, Array]:
    after = states.copy()
    after[:, :2] += actions
    a, b = after[:, 0], after[:, :2].sum(axis=1)
    hand = np.stack([np.cos(a) + np.cos(b), np.sin(a) + np.sin(b)], axis=1)
    return after, np.linalg.norm(hand - after[:, 2:4], axis=1) < 0.06


def _mass_reset(rng: np.random.Generator, count: int) -> Array:
    position, side = rng.uniform(-1, 1, (count, 2)), rng.uniform(0, 2 * np.pi, count)
    offset = rng.uniform(0.4, 1.4, count) * np.stack([np.cos(side), np.sin(side)])
    goal = position + offset.T
    return np.concatenate([position, np.zeros((count, 2)), goal], axis=1)


def _mass_step(states: Array, actions: Array) -> tuple[Array, Array]:
    after = states.copy()
    after[:, 2:4] += actions / skilled_data.RATE
    after[:, :2] += after[:, 2:4] / skilled_data.RATE
    is_near = np.linalg.norm(after[:, :2] - after[:, 4:], axis=1) < 0.08
    return after, is_near & (np.linalg.norm(after[:, 2:4], axis=1) < 0.15)


WORLDS = {
    "mover": World(_mover_reset, _mover_step),
    "two joints": World(_joints_reset, _joints_step),
    "mass": World(_mass_reset, _mass_step),
}


def cloned(
    states: Array, actions: Array, rng: np.random.Generator, updates: Sequence[int] = (_UPDATES,)
) -> list[Policy]:
    """Returns policies that imitate actions, after some numbers of updates."""
    centers, scales = zip(*((it.mean(0), it.std(0) + 1e-6) for it in (states, actions)))
    inputs, targets = (states - centers[0]) / scales[0], (actions - centers[1]) / scales[1]
    sizes = [states.shape[1], _UNITS, _UNITS, actions.shape[1]]
    weights = [rng.normal(size=pair) / pair[0] ** 0.5 for pair in itertools.pairwise(sizes)]
    weights += [np.zeros(size) for size in sizes[1:]]
    first, second = ([np.zeros_like(it) for it in weights] for _ in range(2))

    def layers(rows: Array, weights: Sequence[Array]) -> list[Array]:
        activations = [rows]
        for layer in range(3):
            output = activations[-1] @ weights[layer] + weights[3 + layer]
            activations.append(np.tanh(output) if layer < 2 else output)
        return activations

    def policy(weights: Sequence[Array]) -> Policy:
        return lambda rows: (
            layers((rows - centers[0]) / scales[0], weights)[3] * scales[1] + centers[1]
        )

    policies = []
    for update in range(1, max(updates) + 1):
        batch = rng.integers(0, len(inputs), _BATCH)
        activations = layers(inputs[batch], weights)
        slope = 2 * (activations[3] - targets[batch]) / activations[3].size
        slopes: list[Array] = [np.empty(0)] * 6
        for layer in (2, 1, 0):
            slopes[layer], slopes[3 + layer] = activations[layer].T @ slope, slope.sum(axis=0)
            slope = (slope @ weights[layer].T) * (1 - activations[layer] ** 2)
        for weight, each, mean, square in zip(weights, slopes, first, second):
            mean += 0.1 * (each - mean)
            square += 0.001 * (each**2 - square)
            step = mean / (1 - 0.9**update)
            weight -= _RATE * step / (np.sqrt(square / (1 - 0.999**update)) + 1e-8)
        if update in updates:
            policies.append(policy([weight.copy() for weight in weights]))
    return policies


def success(world: World, policy: Policy, limit: int, seed: int) -> float:
    """In which share of the worlds a policy does its task in so many steps."""
    states = world.reset(np.random.default_rng([seed, 1]), _WORLDS)
    is_done = np.zeros(_WORLDS, bool)
    for _ in range(limit):
        states, done = world.step(states, policy(states))
        is_done |= done
    return float(is_done.mean())


def _demonstrated(task: str, seed: int) -> tuple[list[audited_data.Episode], dict[str, Array]]:
    """Returns the demonstrations of a task, and their scores; those of experts come first."""
    episodes = [
        each
        for of_skill in skilled_data.make_demonstrations(task, seed).values()
        for each in of_skill
    ]
    with tempfile.TemporaryDirectory() as folder:
        audited_data.write(Path(folder), episodes)
        source = rlds.sources.open(folder).source
        declared = rlds.sources.Episodes(source, declared={"fps": skilled_data.RATE})
        return episodes, dict(audit(declared, jobs=1, progress=False).scores)


def measure(seeds: Sequence[int], workers: Executor) -> None:
    """Measures, and prints."""
    areas: dict[str, dict[str, list[float]]] = {task: {} for task in WORLDS}
    is_expert = np.repeat([True, False, False], 20)
    demonstrated = {
        task: [*workers.map(_demonstrated, itertools.repeat(task), seeds)] for task in WORLDS
    }
    for task, of_seeds in demonstrated.items():
        for _, scores in of_seeds:
            for name, values in scores.items():
                area = auditing._area(values[is_expert], values[~is_expert])
                areas[task].setdefault(name, []).append(area)
    print("| task | score | " + " | ".join(SETS) + " | better - random | skilled - random |")
    print("|---|---|" + "--:|" * (len(SETS) + 2))
    for task, world in WORLDS.items():
        other_areas = [areas[other] for other in WORLDS if other != task]
        score = max(other_areas[0], key=lambda name: sum(np.mean(it[name]) for it in other_areas))
        episodes = [each for each, _ in demonstrated[task]]
        by_score = [scores[score] for _, scores in demonstrated[task]]
        of_world = itertools.repeat(world)
        success_rates = np.array([*workers.map(_successes, of_world, episodes, by_score, seeds)])
        cells = [f"{100 * value:.0f} %" for value in success_rates.mean(axis=0)]
        for chosen in (1, 3):
            apart = 100 * (success_rates[:, chosen] - success_rates[:, 2])
            error = 1.96 * apart.std(ddof=1) / len(apart) ** 0.5
            cells.append(f"{apart.mean():+.1f} ± {error:.1f}")
        print(f"| {task} | `{score}` | {' | '.join(cells)} |", flush=True)


def _successes(
    world: World, episodes: list[audited_data.Episode], score: Array, seed: int
) -> list[float]:
    """The success of the policies of each of the sets."""
    rng, num_episodes = np.random.default_rng(seed), len(episodes)
    order = np.argsort(-score, kind="stable")
    experts, practised = np.arange(20), 20 + rng.permutation(20)
    sets = {
        "all": np.arange(num_episodes),
        "better half": order[: num_episodes // 2],
        "random half": rng.permutation(num_episodes)[: num_episodes // 2],
        "most skilled half": np.concatenate([experts, practised[: num_episodes // 2 - 20]]),
    }
    limit = int(_SLOWER * np.median([len(episodes[n].action) for n in experts]))
    rates = []
    for name in SETS:
        some = [episodes[n] for n in sets[name] if len(episodes[n].action)]  # Not done at first.
        states, actions = (
            np.concatenate([getattr(it, kind)[: len(it.action)] for it in some])
            for kind in ("state", "action")
        )
        [policy] = cloned(states, actions, np.random.default_rng([seed, 2]))
        rates.append(success(world, policy, limit, seed))
    return rates


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="61:81", help="from which to before which")
    begin, end = map(int, parser.parse_args().seeds.split(":"))
    with ProcessPoolExecutor() as workers:
        measure(range(begin, end), workers)


if __name__ == "__main__":
    main()
