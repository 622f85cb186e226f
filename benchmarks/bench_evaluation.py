"""How fast recorded episodes become estimates of what a policy is worth, beside scope-rl.

    python benchmarks/bench_evaluation.py [--episodes N] [--steps N] [--rounds N] [--json]

Run it with a Python that has this project and, beside it, `scope-rl==0.2.1` without its
dependencies, `scipy` and `scikit-learn`. Both sides get the probabilities of the recorded actions
under both policies as arrays (ours as logarithms, theirs with those of the other actions), and
return the estimate of N episodes (10,000) of N steps (50) each. The estimates are compared.

The ratio is the processor time of scope-rl to ours.
"""

import argparse
import functools
import sys
import warnings
from pathlib import Path

import numpy as np
import rounds
from rich.console import Console
from rich.table import Table

from rlds.evaluation import EstimateWarning, EvaluationSet, importance_sampling

SUPPORT = Path(__file__).parent.parent / "tests" / "support"
if str(SUPPORT) not in sys.path:
    sys.path.append(str(SUPPORT))

OURS, THEIRS, GOAL = "rlds.evaluation", "scope-rl", 1.5
STATES, ACTIONS = 10, 4
GAMMA = 0.99


def problem(episodes: int, steps: int) -> tuple[EvaluationSet, np.ndarray, dict[str, object]]:
    """Returns the data, the logarithms for the target, and what scope-rl takes of the same."""
    rng = np.random.default_rng(0)
    number = episodes * steps
    states = rng.integers(STATES, size=number)
    behaviour = rng.dirichlet(np.full(ACTIONS, 5.0), STATES)
    target = 0.9 * behaviour + 0.1 * rng.dirichlet(np.ones(ACTIONS), STATES)
    bounds = np.cumsum(behaviour, axis=1)[states]
    actions = (rng.random((number, 1)) >= bounds[:, :-1]).sum(axis=1)
    rewards = rng.normal(size=number) + actions
    data = EvaluationSet(
        num_transitions=np.full(episodes, steps),
        is_terminal=np.ones(episodes, bool),
        final_observation_known=np.zeros(episodes, bool),
        observations=states,
        actions=actions,
        rewards=rewards,
        log_probs=np.log(behaviour[states, actions]),
    )
    theirs = {
        "step_per_trajectory": steps,
        "action": actions,
        "reward": rewards,
        "pscore": behaviour[states, actions],
        "evaluation_policy_action_dist": target[states],
        "gamma": GAMMA,
    }
    return data, np.log(target[states, actions]), theirs


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    import scope_rl_peer

    warnings.simplefilter("ignore", EstimateWarning)
    data, target, given = problem(arguments.episodes, arguments.steps)
    peers = scope_rl_peer.estimators()
    table = Table("estimator", OURS, THEIRS, f"ratio (goal {GOAL})")
    for is_weighted in (False, True):
        for per_decision in (False, True):
            ours = functools.partial(
                importance_sampling,
                data,
                target,
                gamma=GAMMA,
                weighted=is_weighted,
                per_decision=per_decision,
            )
            name = ours().estimator
            theirs = functools.partial(peers[name].estimate_policy_value, **given)
            np.testing.assert_allclose(ours().value, theirs(), rtol=1e-9)
            times = rounds.take_turns({OURS: ours, THEIRS: theirs}, arguments.rounds)
            if arguments.json:
                rounds.report(name, times)
                continue
            taken = [rounds.medians(times)[who][0] for who in (OURS, THEIRS)]
            shown = [f"{seconds * 1000:.1f} ms" for seconds in taken]
            table.add_row(name, *shown, f"{taken[1] / taken[0]:.2f}")
    if not arguments.json:
        Console().print(table)


if __name__ == "__main__":
    main()
