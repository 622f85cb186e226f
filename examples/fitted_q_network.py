"""Off-policy evaluation: fitted Q-evaluation by a small network, and the closed form.

    python examples/fitted_q_network.py [--updates 10000] [--output DIRECTORY]

A controller keeps a noisy linear system near 0, not very well. From what it recorded, we ask what a
better controller would be worth, which has never acted. In this system that can be computed, so you
see how good the answers are.

`rlds.evaluation.fitted_q` solves for the Q-function at once, with features that fit. A network
needs no such features. It needs thousands of updates instead, and its estimate looks like a result
long before it is one: the script says when it is not. For your own data, replace `record` and
`Better`, and look at the verdicts.

It takes a quarter of a minute. TensorFlow is not loaded.
"""

import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "agg")  # No windows to draw in.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # For small networks, threads cost more.

import numpy as np
from command_line import console, parse
from matplotlib import pyplot
from networks import Adam, Network
from rich.table import Table

import rlds.evaluation

GAMMA = 0.95
GAIN, NOISE = -0.6, 0.2  # Of the better controller.
FOLLOW = 0.02  # See `fit`.
EVERY = 100  # After how many updates there is an estimate.


def record(episodes: int, steps: int, rng: np.random.Generator) -> Iterator[dict]:
    """Episodes of s' = 0.9 s + 0.5 a + noise, whose reward is -(s² + 0.1 a²); each is cut."""
    for _ in range(episodes):
        states, actions = [rng.standard_normal()], []
        for _ in range(steps):
            actions.append(-0.3 * states[-1] + 0.5 * rng.standard_normal())
            states.append(0.9 * states[-1] + 0.5 * actions[-1] + 0.3 * rng.standard_normal())
        actions.append(0.0)  # The last step has an observation only.
        rewards = -(np.square(states) + 0.1 * np.square(actions))
        indices = np.arange(steps + 1)
        yield {
            "steps": {
                "observation": np.array(states)[:, None],
                "action": np.array(actions)[:, None],
                "reward": np.where(indices < steps, rewards, 0.0),
                "is_first": indices == 0,
                "is_last": indices == steps,
                "is_terminal": np.zeros(steps + 1, bool),
            }
        }


def true_value(starts: np.ndarray) -> float:
    """Returns the true value of the better controller from these states on."""
    square = (1 + 0.1 * GAIN**2) / (1 - GAMMA * (0.9 + 0.5 * GAIN) ** 2)
    remainder = 0.1 * NOISE**2 + GAMMA * square * (0.25 * NOISE**2 + 0.09)
    return -(square * np.mean(starts**2) + remainder / (1 - GAMMA))


def fit(
    data: rlds.evaluation.EvaluationSet,
    target: rlds.evaluation.Policy,
    *,
    gamma: float = GAMMA,
    hidden: tuple[int, ...] = (64, 64),
    batch_size: int = 256,
    learning_rate: float = 1e-3,
    follow: float = FOLLOW,
    num_actions: int = 10,
    seed: int = 0,
) -> Iterator[float]:
    """Fits a network to Q; yields its estimate every 100 updates.

    Args:
      data: The recorded data. Observations and actions are vectors.
      target: The policy; it need not have probabilities.
      gamma: The discount of each step.
      hidden: The sizes of the hidden layers.
      batch_size: The number of transitions for each update.
      learning_rate: Of Adam.
      follow: The share by which, at each update, the target network follows the
        one that learns. It is an average of that one, so it gives the estimate as well.
      num_actions: The number of actions of the policy drawn for each observation, once.
      seed: Of all that is random.
    """
    rng = np.random.default_rng(seed)
    # Where it is not known what followed, there is nothing to learn from.
    used = np.flatnonzero(data.has_successor())
    follows = ~data.next_is_terminal[used]
    rows = data.rows[used]
    inputs = together(data.observations_at(rows), data.actions_at(used))
    after = with_actions(target, data.observations_at(rows + follows), num_actions, rng)
    starts = with_actions(target, data.initial_observations, num_actions, rng)
    rewards = data.rewards[used].astype(np.float32)
    discounts = (data.step_discounts(gamma)[used] * follows).astype(np.float32)

    sizes = [inputs.shape[1], *hidden, 1]
    learner, average = Network(sizes, rng), Network(sizes, rng)
    average.parameters[:] = learner.parameters
    optimizer = Adam(learner, learning_rate)
    while True:
        for _ in range(EVERY):
            batch = rng.integers(len(used), size=batch_size)
            later = average(after[batch, rng.integers(num_actions, size=batch_size)])[:, 0]
            targets = rewards[batch] + discounts[batch] * later
            values = learner.forward(inputs[batch])
            error = values[-1] - targets[:, None]
            gradient, _ = learner.backward(values, error * np.float32(2 / batch_size))
            optimizer.step(gradient)
            average.parameters += np.float32(follow) * (learner.parameters - average.parameters)
        yield float(average(starts.reshape(-1, sizes[0])).mean())


def together(observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Returns the input of the network: observations and actions, concatenated."""
    return np.concatenate([observations, actions], axis=-1, dtype=np.float32)


def with_actions(
    target: rlds.evaluation.Policy,
    observations: np.ndarray,
    num_actions: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Observations, each with several actions of the policy, `[n, num_actions, ...]`."""
    drawn = (target.sample(observations, rng) for _ in range(num_actions))
    return np.stack([together(observations, actions) for actions in drawn], axis=1)


def doubts(estimates: list[float]) -> list[str]:
    """Why the last of these estimates is no result.

    Args:
      estimates: The estimates of `fit`, from the first one on.
    """
    reasons = []
    # What the average has taken over so often, it sees as many rewards ahead.
    missing = GAMMA ** (FOLLOW * EVERY * len(estimates))
    if missing > 0.01:
        reasons.append(f"{missing:.0%} of the value of later steps is missing")
    last = np.array(estimates[-max(len(estimates) // 4, 3) :])
    indices = np.arange(len(last))
    if len(last) > 2:
        slope, start = np.polyfit(indices, last, 1)
        drift, noise = slope * len(last), np.std(last - (start + slope * indices))
        if abs(drift) > max(2 * noise, 0.01 * abs(last[-1])):
            reasons.append(
                f"a drift of {drift:+.2f} in the last quarter, against noise of {noise:.2f}"
            )
    return reasons


def draw(estimates: list[float], closed: tuple, true: float, path: Path) -> None:
    """Writes the estimates over the updates as a PNG file."""
    figure, axis = pyplot.subplots(figsize=(7, 4), layout="constrained")
    updates = EVERY * np.arange(1, len(estimates) + 1)
    settled = [not doubts(estimates[:count]) for count in range(1, len(estimates) + 1)]
    first = len(settled) - settled[::-1].index(False) if False in settled else 0
    axis.axvspan(0, updates[min(first, len(updates) - 1)], color="0.93", label="not converged")
    axis.plot(updates, estimates, color="#34608d", label="network")
    value, interval = closed
    axis.axhline(value, color="#b35900", label="closed form, and its 95 % interval")
    axis.axhspan(interval.lower, interval.upper, color="#b35900", alpha=0.15)
    axis.axhline(true, color="#2a7f3f", linestyle="--", label="true value")
    axis.set(title="Fitted Q-evaluation of a controller that has never acted")
    axis.set(xlabel="updates of the network", ylabel="value", xlim=(0, updates[-1]))
    axis.legend(loc="upper right")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    """Records, fits, and prints what came out."""
    assert __doc__
    arguments = parse(__doc__, "fitted-q", updates=(10000, "of the network"))
    rng = np.random.default_rng(arguments.seed)
    data = rlds.evaluation.collect(record(500, 40, rng))
    target = rlds.evaluation.GaussianPolicy(lambda states: (GAIN * states, np.log(NOISE)))
    true = true_value(data.initial_observations)

    began = time.perf_counter()
    features = rlds.evaluation.Quadratic()
    estimate = rlds.evaluation.fitted_q(data, target, features=features, gamma=GAMMA).estimate()
    took = time.perf_counter() - began
    interval = estimate.interval()
    console.print(f"true value from the recorded starts on: {true:.2f}")
    console.print(f"closed form, after {1000 * took:.0f} ms: {estimate.value:.2f}, {interval}")

    began, fits = time.perf_counter(), fit(data, target, seed=arguments.seed)
    estimates = list(itertools.islice(fits, max(arguments.updates // EVERY, 1)))
    took = time.perf_counter() - began
    table = Table("updates", "estimate", "verdict", title=f"The network, after {took:.0f} s")
    for share in (0.1, 0.25, 0.5, 1.0):
        first_estimates = estimates[: max(int(share * len(estimates)), 1)]
        verdict = "; ".join(doubts(first_estimates))
        verdict = f"NOT CONVERGED: {verdict}" if verdict else "no sign of drift"
        table.add_row(f"{len(first_estimates) * EVERY}", f"{first_estimates[-1]:.2f}", verdict)
    console.print(table)
    picture = arguments.output / "estimates.png"
    draw(estimates, (estimate.value, interval), true, picture)
    console.print(f"Figure: {picture}", soft_wrap=True)
    has_converged = not doubts(estimates)
    if not has_converged:
        console.print("The network has not converged: its last estimate is not a result.")
    sys.exit(not has_converged)


if __name__ == "__main__":
    main()
