"""A published policy is evaluated on a file of D4RL, whose own policy is known, too."""

import numpy as np
import pytest
import raw_d4rl
import raw_deep_ope

import rlds_tools
from rlds.evaluation import Quadratic, collect, fitted_q, importance_sampling, load_policy
from rlds.evaluation.policy_formats import read_deep_ope_index

EPISODES, STEPS, GAMMA = 500, 15, 0.95
SIZES = (2, 8, 8, 1)


def play(policy, number, steps, rng):
    """Rows as D4RL has them, an axis of episodes after that of steps; nothing ends early."""
    state, rows = rng.normal(size=(number, 2)), []
    for step in range(steps):
        observations = state.astype(np.float32)
        acted = raw_d4rl.acted(policy, observations, seed=int(rng.integers(1 << 31)))
        push = np.concatenate([acted["actions"], -acted["actions"]], axis=1)
        rewards = -np.sum(state**2, axis=1) - 0.1 * acted["actions"][:, 0] ** 2
        state = 0.8 * state + 0.5 * push + 0.1 * rng.normal(size=state.shape)
        rows.append(
            {
                "observations": observations,
                "next_observations": state.astype(np.float32),
                "rewards": rewards.astype(np.float32),
                "terminals": np.zeros(number, bool),
                "timeouts": np.full(number, step == steps - 1),
                **acted,
            }
        )
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def value_of(rows):
    """The mean discounted return."""
    discounts = GAMMA ** np.arange(len(rows["rewards"]))
    return float((discounts[:, None] * rows["rewards"]).sum(axis=0).mean())


def by_episode(rows):
    """Rows in the order of a file: one episode after the other."""
    return {
        name: np.swapaxes(array, 0, 1).reshape(-1, *array.shape[2:]) for name, array in rows.items()
    }


@pytest.mark.parametrize("converted", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_policy_of_deep_ope_on_data_of_d4rl(tmp_path, converted):
    rng = np.random.default_rng(0)
    recorder = raw_d4rl.policy(SIZES)
    recorder["metadata/policy/last_fc_log_std/bias"] -= 0.5
    rows = play(recorder, EPISODES, STEPS, rng)
    path = raw_d4rl.write(tmp_path / "hopper_medium-v2.hdf5", {**by_episode(rows), **recorder})
    if converted:
        rlds_tools.convert(path, tmp_path / "dataset")
        path = tmp_path / "dataset"
    data = collect(path, log_prob="infos/action_log_probs")
    assert (data.num_episodes, len(data.rewards)) == (EPISODES, EPISODES * STEPS)
    assert data.final_observation_known.all()

    # The policy that recorded the file explains it: all weights are 1.
    behaviour = load_policy(path)
    found = behaviour.log_prob(data.observations_at(data.rows), data.actions)
    assert np.median(np.abs(found - data.log_probs)) < 1e-6
    itself = importance_sampling(data, behaviour, gamma=GAMMA, horizon=STEPS)
    assert itself.value == pytest.approx(value_of(rows), rel=1e-5)
    assert itself.weights.effective_sample_size == pytest.approx(EPISODES)

    # Another policy, found in the index of Deep-OPE.
    changes = {"last_fc/bias": -0.1, "last_fc_log_std/bias": -0.2}
    other = {**recorder}
    for name, change in changes.items():
        other[f"metadata/policy/{name}"] = other[f"metadata/policy/{name}"] + np.float32(change)
    changed = {name: other[f"metadata/policy/{name}"] for name in changes}
    raw_deep_ope.write_policy(tmp_path / "hopper/hopper_online_3.pkl", SIZES, **changed)
    records = [raw_deep_ope.d4rl_record("hopper/hopper_online_3", 1128.9)]
    (known,) = read_deep_ope_index(raw_deep_ope.write_index(tmp_path / "index.json", records))
    target = load_policy(known)
    estimates = [
        importance_sampling(data, target, behaviour=behaviour, gamma=GAMMA, horizon=STEPS),
        importance_sampling(data, target, gamma=GAMMA, horizon=STEPS),
    ]
    assert estimates[0].value == pytest.approx(estimates[1].value, rel=1e-9)
    assert estimates[0].weights.effective_sample_size > 50
    value = value_of(play(other, 5000, STEPS, rng))
    interval = estimates[0].interval()
    assert interval.lower < value < interval.upper
    # It is nearer than the value of the data.
    assert abs(estimates[0].value - value) < abs(value_of(rows) - value) / 2

    # A fitted Q-function looks beyond the recorded steps. What it fits is nearly quadratic.
    endless = value_of(play(other, 500, 120, rng))
    fitted = fitted_q(data, target, features=Quadratic(), gamma=GAMMA).estimate()
    assert fitted.value == pytest.approx(endless, rel=0.05)
