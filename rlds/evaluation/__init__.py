"""Off-policy evaluation: values of policies from recorded data alone, without TensorFlow.

    data = rlds.evaluation.collect("~/logs/walker", log_prob="log_prob")
    estimate = rlds.evaluation.importance_sampling(data, policy, gamma=0.99, horizon=1000)
    print(estimate)             # The value, and reasons to doubt it.
    print(estimate.interval())

Observations, actions and rewards are NumPy arrays; formulas are in float64.
"""

from rlds_ecosystem.lazy import lazy_package as _lazy_package

__getattr__, __dir__, __all__ = _lazy_package(__name__, __file__)
