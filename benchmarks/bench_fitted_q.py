"""How soon fitted Q-evaluation gives the value of a policy, beside that of d3rlpy.

    ROBOTICS_PYTHON=that/bin/python python benchmarks/bench_fitted_q.py [--updates N] [--hidden N]

`ROBOTICS_PYTHON` is a Python that has `d3rlpy==2.8.1` and PyTorch. The data is that of the tests: a
linear system with normal noise, 500 episodes of 40 steps, whose final observations are known. The
policy is deterministic, as d3rlpy evaluates the mode of a policy. Its value from the recorded
starts on is known.

There are three contenders, with one thread each: `fitted_q` in closed form; the network of
`examples/fitted_q_network.py`; and `FQE` of d3rlpy, with batches from its own buffer. Both networks
have two hidden layers of N units (64), batches of 256, Adam with a rate of 0.001, and targets of
the same age: d3rlpy copies its network every 50 updates, ours follows by 0.02 at each. They take
turns, 500 updates at a time; the ratio is that of the medians of processor times. An estimate
counts as found after the turn from which on all are within 5 % of the true value.
"""

import argparse
import functools
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import rounds

ROOT = Path(__file__).parent.parent
GAMMA, GAIN = 0.95, -0.6
BATCH, RATE, AGE = 256, 1e-3, 50
TURN = 500
CLOSED, NETWORK, PEER = "closed form", "our network", "d3rlpy"


def serve(path: str, hidden: int) -> None:
    """The side of d3rlpy: makes as many updates as each line says, and prints what they gave."""
    import torch
    from d3rlpy.dataset import MDPDataset
    from d3rlpy.models import VectorEncoderFactory
    from d3rlpy.ope import FQE, FQEConfig

    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = dict(np.load(path))

    class Policy:
        @staticmethod
        def predict_best_action(observations: "torch.Tensor") -> "torch.Tensor":
            return GAIN * observations

    class Algorithm:
        impl = Policy()

    starts = data.pop("starts")
    dataset = MDPDataset(**data)
    config = FQEConfig(
        learning_rate=RATE,
        encoder_factory=VectorEncoderFactory([hidden, hidden]),
        batch_size=BATCH,
        gamma=GAMMA,
        target_update_interval=AGE,
    )
    fqe = FQE(algo=Algorithm(), config=config)  # type: ignore[arg-type]
    fqe.build_with_dataset(dataset)
    assert dataset.transition_count == len(data["rewards"]) - len(starts)

    def update(number: int) -> None:
        for _ in range(number):
            fqe.update(dataset.sample_transition_batch(BATCH))

    for line in sys.stdin:
        times = rounds.timed(functools.partial(update, int(line)))
        value = float(fqe.predict_value(starts, np.float32(GAIN) * starts).mean())
        print("found", json.dumps([times, value]), flush=True)


def peer(python: str, data: Any, hidden: int) -> Iterator[tuple[rounds.Times, float]]:
    """Starts d3rlpy; yields the times and the estimate of each turn."""
    # Its last step of each episode has an observation only.
    ends = data.splits[1:] + np.arange(data.num_episodes)
    steps = {
        "observations": data.observations,
        "actions": np.insert(data.actions, data.splits[1:], 0.0, axis=0),
        "rewards": np.insert(data.rewards, data.splits[1:], 0.0),
        "terminals": np.zeros(len(data.observations)),
        "timeouts": np.isin(np.arange(len(data.observations)), ends),
        "starts": data.initial_observations,
    }
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        np.savez(file.name, **{name: column.astype(np.float32) for name, column in steps.items()})
        command = [python, __file__, "--serve", file.name, "--hidden", str(hidden)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        ) as process:
            while True:
                process.stdin.write(f"{TURN}\n")
                process.stdin.flush()
                answer = next((line for line in process.stdout if line.startswith("found")), None)
                if answer is None:
                    raise SystemExit(f"{' '.join(command)} failed")
                times, value = json.loads(answer.removeprefix("found"))
                yield tuple(times), value


def ours(fits: Iterator[float], every: int) -> Iterator[tuple[rounds.Times, float]]:
    """Yields the times and the estimate of each turn of our network."""
    while True:
        found: list[float] = []
        times = rounds.timed(functools.partial(found.extend, itertools.islice(fits, TURN // every)))
        yield times, found[-1]


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--updates", type=int, default=10_000)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.hidden)
        return
    python = os.environ.get("ROBOTICS_PYTHON")
    if not python:
        parser.error("ROBOTICS_PYTHON names no Python with d3rlpy")
    sys.path += [str(ROOT / "examples"), str(ROOT / "tests" / "support")]
    import evaluation_problems
    import fitted_q_network

    from rlds.evaluation import Quadratic, fitted_q

    problem = evaluation_problems.LinearGaussian
    data = problem.sample(500, 40, np.random.default_rng(0))
    target = problem.policy(GAIN, 0.0)
    square = (1 + 0.1 * GAIN**2) / (1 - GAMMA * (0.9 + 0.5 * GAIN) ** 2)
    noise = GAMMA * square * 0.09 / (1 - GAMMA)
    true = float(-(square * np.mean(data.initial_observations**2) + noise))

    def solve() -> float:
        return fitted_q(data, target, features=Quadratic(), gamma=GAMMA).estimate().value

    times: dict[str, list[rounds.Times]] = {CLOSED: [rounds.timed(solve) for _ in range(20)]}
    fits = fitted_q_network.fit(
        data,
        target,
        gamma=GAMMA,
        hidden=(arguments.hidden, arguments.hidden),
        batch_size=BATCH,
        learning_rate=RATE,
        follow=1 / AGE,
        num_actions=1,
    )
    turns = {
        NETWORK: ours(fits, fitted_q_network.EVERY),
        PEER: peer(python, data, arguments.hidden),
    }
    values: dict[str, list[float]] = {NETWORK: [], PEER: []}
    for _ in range(arguments.updates // TURN):
        for name, turn in turns.items():
            taken, value = next(turn)
            times.setdefault(name, []).append(taken)
            values[name].append(value)
        print(*(f"{name} {found[-1]:.2f}" for name, found in values.items()), file=sys.stderr)
    print(f"true value {true:.3f}; closed form {solve():.3f}")
    medians = {name: cpu for name, (cpu, _) in rounds.medians(times).items()}
    print(f"{CLOSED}: {1000 * medians[CLOSED]:.1f} ms")
    for name, found in values.items():
        near = [abs(value - true) < 0.05 * abs(true) for value in found]
        turn = len(near) - near[::-1].index(False) if False in near else 0
        spent = sum(cpu for cpu, _ in times[name][: turn + 1])
        when = f"from {(turn + 1) * TURN} updates on, {spent:.1f} s" if near[-1] else "never"
        speed = f"{TURN / medians[name]:.0f} updates/s"
        print(f"{name}: {speed}, last estimate {found[-1]:.3f}; within 5 % {when}")
    print(f"an update of d3rlpy takes {medians[PEER] / medians[NETWORK]:.1f} times as long")


if __name__ == "__main__":
    main()
