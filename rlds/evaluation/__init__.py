"""What a policy is worth, from recorded data alone: off-policy evaluation, without TensorFlow.

    data = rlds.evaluation.collect("~/logs/walker", log_prob="log_prob")
    estimate = rlds.evaluation.importance_sampling(data, policy, gamma=0.99, horizon=1000)
    print(estimate)             # The value, and what speaks against believing it.
    print(estimate.interval())

Observations, actions and rewards are NumPy arrays, formulas are in float64.
"""

from typing import TYPE_CHECKING

from rlds_ecosystem.lazy import lazy_package as _lazy_package

if TYPE_CHECKING:
    from rlds.evaluation.estimates import Estimate, Interval
    from rlds.evaluation.evaluation_set import EvaluationSet, collect
    from rlds.evaluation.features import Features, OneHot, Quadratic, Sampled
    from rlds.evaluation.importance import importance_sampling
    from rlds.evaluation.linear_q import LinearQ, fitted_q
    from rlds.evaluation.metrics import Comparison, Score, compare
    from rlds.evaluation.policies import (
        CategoricalPolicy,
        DeterministicPolicy,
        GaussianPolicy,
        Policy,
        SamplerPolicy,
        TanhGaussianPolicy,
        UniformPolicy,
        mlp_policy,
    )
    from rlds.evaluation.policy_files import load_policy
    from rlds.evaluation.q_functions import QFunction, TabularQ
    from rlds.evaluation.ratios import EstimateWarning
    from rlds.evaluation.robust import direct_method, doubly_robust

__all__ = [
    "CategoricalPolicy",
    "Comparison",
    "DeterministicPolicy",
    "Estimate",
    "EstimateWarning",
    "EvaluationSet",
    "Features",
    "GaussianPolicy",
    "Interval",
    "LinearQ",
    "OneHot",
    "Policy",
    "QFunction",
    "Quadratic",
    "Sampled",
    "SamplerPolicy",
    "Score",
    "TabularQ",
    "TanhGaussianPolicy",
    "UniformPolicy",
    "collect",
    "compare",
    "direct_method",
    "doubly_robust",
    "fitted_q",
    "importance_sampling",
    "load_policy",
    "mlp_policy",
]

# Its names are loaded when they are used: some of its modules are of use alone.
_HOMES = {
    "rlds.evaluation.estimates": ["Estimate", "Interval"],
    "rlds.evaluation.evaluation_set": ["EvaluationSet", "collect"],
    "rlds.evaluation.features": ["Features", "OneHot", "Quadratic", "Sampled"],
    "rlds.evaluation.importance": ["importance_sampling"],
    "rlds.evaluation.linear_q": ["LinearQ", "fitted_q"],
    "rlds.evaluation.metrics": ["Comparison", "Score", "compare"],
    "rlds.evaluation.policies": [
        "CategoricalPolicy",
        "DeterministicPolicy",
        "GaussianPolicy",
        "Policy",
        "SamplerPolicy",
        "TanhGaussianPolicy",
        "UniformPolicy",
        "mlp_policy",
    ],
    "rlds.evaluation.policy_files": ["load_policy"],
    "rlds.evaluation.q_functions": ["QFunction", "TabularQ"],
    "rlds.evaluation.ratios": ["EstimateWarning"],
    "rlds.evaluation.robust": ["direct_method", "doubly_robust"],
}

if not TYPE_CHECKING:  # A type checker would believe that every name is there.
    __getattr__, __dir__ = _lazy_package(__name__, __all__, _HOMES)
