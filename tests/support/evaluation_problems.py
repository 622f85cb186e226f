"""Problems of off-policy evaluation with exact solutions."""

import itertools

import numpy as np

from rlds.evaluation.evaluation_set import EvaluationSet
from rlds.evaluation.policies import CategoricalPolicy, GaussianPolicy


def four_episodes():
    """Four episodes of two states with every kind of end; behaviour 1/2, gamma 1/2."""
    data = EvaluationSet(
        num_transitions=[2, 1, 3, 2],
        is_terminal=[True, True, False, False],
        final_observation_known=[False, False, True, False],
        observations=np.array([0, 1, 0, 0, 0, 1, 0, 0, 1]),
        actions=np.array([1, 0, 0, 1, 1, 1, 0, 0]),
        rewards=[1.0, 2.0, 4.0, 0.0, 2.0, 8.0, 2.0, 4.0],
        log_probs=np.full(8, np.log(0.5)),
    )
    return data, CategoricalPolicy.from_table([[0.25, 0.75], [0.75, 0.25]])


# Q of the four episodes, [state, action].
FOUR_EPISODES_Q = np.array([[2.0, 3.0], [5.0, 1.0]])


class MdpA:
    """Three states, two actions, and a terminal state; gamma 0.9."""

    gamma = 0.9
    # [state, action, next state]; the remaining probability is that of the terminal state.
    next_probs = np.array(
        [
            [[0.5, 0.5, 0.0], [0.0, 0.2, 0.8]],
            [[0.3, 0.0, 0.5], [0.0, 0.0, 0.4]],
            [[0.6, 0.4, 0.0], [0.0, 0.1, 0.4]],
        ]
    )
    rewards = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 3.0]])
    start = np.array([0.6, 0.4, 0.0])
    target_probs = np.array([[0.2, 0.8], [0.7, 0.3], [0.5, 0.5]])
    behaviour_probs = np.array([[0.5, 0.5], [0.4, 0.6], [0.8, 0.2]])
    target = CategoricalPolicy.from_table(target_probs)
    behaviour = CategoricalPolicy.from_table(behaviour_probs)
    # The value of the target policy, also of its first steps.
    value = 2.324891512768232
    values = np.array([2.431275336762, 2.165315776778, 2.614195598415])
    values_of_horizons = (0.36, 0.98496, 1.33479576, 1.61593041096)
    undiscounted_value = 3.393013525347864

    @classmethod
    def q(cls):
        """The exact Q-function of the target policy, [state, action]."""
        return cls.rewards + cls.gamma * cls.next_probs @ cls.values

    @classmethod
    def all_trajectories(cls, horizon):
        """Every trajectory up to a horizon under the behaviour policy, with its probability.

        Trajectories without a terminal state are truncated. All final observations are recorded;
        the one of a terminal state is arbitrary.
        """
        done, running = [], [([s], [], p) for s, p in enumerate(cls.start) if p]
        for _ in range(horizon):
            longer = []
            for (states, actions, p), a in itertools.product(running, range(2)):
                s = states[-1]
                p_action = p * cls.behaviour_probs[s, a]
                p_next = cls.next_probs[s, a]
                if 1 - p_next.sum() > 1e-12:
                    done.append((states, [*actions, a], p_action * (1 - p_next.sum()), True))
                for end in np.flatnonzero(p_next):
                    longer.append(([*states, int(end)], [*actions, a], p_action * p_next[end]))
            running = longer
        done += [(*trajectory, False) for trajectory in running]
        return cls._as_set(done), np.array([p for _, _, p, _ in done])

    @classmethod
    def sample(cls, count, horizon, rng, share_unknown=0.0):
        """Episodes of the behaviour policy, cut at a horizon.

        Args:
          count: The number of episodes.
          horizon: The largest number of steps.
          rng: The source of randomness.
          share_unknown: The probability that an episode's final observation is not recorded.
        """
        cumulated = np.cumsum(cls.next_probs, axis=-1)
        state = np.searchsorted(np.cumsum(cls.start), rng.random(count), side="right")
        states, actions = [state], []
        alive, ended = np.ones(count, bool), np.zeros(count, bool)
        lengths = np.zeros(count, int)
        for _ in range(horizon):
            action = (rng.random(count) < cls.behaviour_probs[state, 1]).astype(int)
            after = (rng.random((count, 1)) >= cumulated[state, action]).sum(axis=-1)
            lengths += alive
            ended |= alive & (after == 3)
            alive &= after < 3
            state = np.where(after < 3, after, 0)
            states.append(state)
            actions.append(action)
        states, actions = np.array(states).T, np.array(actions).T
        is_final_known = rng.random(count) >= share_unknown
        return cls._from_grid(states, actions, lengths, ended, is_final_known)

    @classmethod
    def _from_grid(cls, states, actions, lengths, ended, is_final_known):
        horizon = actions.shape[1]
        is_step = np.arange(horizon + 1) < (lengths + is_final_known)[:, None]
        is_transition = np.arange(horizon) < lengths[:, None]
        origins, taken = states[:, :-1][is_transition], actions[is_transition]
        return EvaluationSet(
            num_transitions=lengths,
            is_terminal=ended,
            final_observation_known=is_final_known,
            observations=states[is_step],
            actions=taken,
            rewards=cls.rewards[origins, taken],
            log_probs=np.log(cls.behaviour_probs[origins, taken]),
        )

    @classmethod
    def _as_set(cls, trajectories):
        lengths = np.array([len(actions) for _, actions, _, _ in trajectories])
        ended = np.array([terminal for *_, terminal in trajectories])
        horizon = max(lengths)
        states = np.array([s + [0] * (horizon + 1 - len(s)) for s, *_ in trajectories])
        actions = np.array([a + [0] * (horizon - len(a)) for _, a, *_ in trajectories])
        return cls._from_grid(states, actions, lengths, ended, lengths > 0)


class LinearGaussian:
    """s' = .9 s + .5 a + .3 noise, r = -(s² + .1 a²), s0 ~ N(0, 1); gamma 0.95; never terminal."""

    gamma = 0.95

    @staticmethod
    def policy(gain, deviation):
        log_std = np.log(deviation) if deviation else -np.inf
        return GaussianPolicy(lambda observations: (gain * observations, log_std))

    @classmethod
    def sample(cls, count, steps, rng, gain=-0.3, deviation=0.5, share_unknown=0.0):
        """Episodes of a behaviour policy."""
        state = rng.standard_normal(count)
        states, actions = [state], []
        for _ in range(steps):
            action = gain * state + deviation * rng.standard_normal(count)
            state = 0.9 * state + 0.5 * action + 0.3 * rng.standard_normal(count)
            states.append(state)
            actions.append(action)
        states, actions = np.array(states).T, np.array(actions).T
        is_final_known = rng.random(count) >= share_unknown
        is_step = np.arange(steps + 1) < (steps + is_final_known)[:, None]
        origins, taken = states[:, :-1].reshape(-1, 1), actions.reshape(-1, 1)
        return EvaluationSet(
            num_transitions=np.full(count, steps),
            is_terminal=np.zeros(count, bool),
            final_observation_known=is_final_known,
            observations=states[is_step][:, None],
            actions=taken,
            rewards=-(origins**2 + 0.1 * taken**2)[:, 0],
            log_probs=cls.policy(gain, deviation).log_prob(origins, taken) if deviation else None,
        )
