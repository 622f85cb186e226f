"""Policies for off-policy evaluation: samples, modes and log-probabilities of actions."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np
from typing_extensions import override

from rlds_ecosystem.model.names import suggest_names
from rlds_ecosystem.model.nests import named_leaves

__all__ = [
    "CategoricalPolicy",
    "DeterministicPolicy",
    "GaussianPolicy",
    "Policy",
    "RowError",
    "SamplerPolicy",
    "TanhGaussianPolicy",
    "UniformPolicy",
    "as_indices",
    "mlp_policy",
    "with_row_location",
]

# The largest float32 below 1. Larger values round to 1, whose artanh is infinite.
_MAX_FLOAT32_BELOW_1 = 1.0 - 2.0**-24
# The exponential of a larger logarithm overflows.
_MAX_LOG_STD = 700.0
_LOG_2PI = float(np.log(2.0 * np.pi))
# The tolerance of a sum of probabilities that were stored as float32.
_SUM_TOLERANCE = 1e-5
# The number of rows in a batch of a network, which limits the memory of hidden layers.
_BLOCK_ROWS = 1 << 14


class RowError(ValueError):
    """An observation or an action is invalid for a policy.

    Attributes:
      row: The row of the batch, from 0 on.
      field: "observation" or "action".
      problem: The fault.
    """

    def __init__(self, row: int, field: Literal["observation", "action"], problem: str) -> None:
        self.row, self.field, self.problem = row, field, problem
        super().__init__(f"row {row}, {field}: {problem}")


@contextlib.contextmanager
def with_row_location(locate: Callable[[int], str], first: int = 0) -> Iterator[None]:
    """Adds the episode and step to a `RowError`; `first` is the index of the first row."""
    try:
        yield
    except RowError as error:
        raise ValueError(f"{locate(first + error.row)}, {error.field}: {error.problem}") from error


class Policy(abc.ABC):
    """A policy for batches of observations.

    Observations have the form of `EvaluationSet.observations`: an array with a leading axis, or
    dicts of such arrays. Probabilities are computed in float64.
    """

    @abc.abstractmethod
    def sample(self, observations: Any, rng: np.random.Generator) -> np.ndarray:
        """Returns a random action for each observation."""

    @abc.abstractmethod
    def mode(self, observations: Any) -> np.ndarray:
        """Returns the action without noise for each observation.

        Raises:
          TypeError: The mode is unknown, as the policy only samples.
        """

    def mean(self, observations: Any) -> np.ndarray:
        """Returns the expected action for each observation.

        Raises:
          TypeError: Actions have no mean, or it is unknown.
        """
        del observations
        raise TypeError(f"{type(self).__name__} has no expected action")

    def log_prob(self, observations: Any, actions: np.ndarray) -> np.ndarray:
        """Returns the logarithm of the probability of each action, or of its density.

        Args:
          observations: The observations.
          actions: The actions, one for each observation.

        Returns:
          An array of shape `[n]`, float64; -inf for an action that the policy never takes.

        Raises:
          RowError: An action is invalid, such as NaN or out of bounds. The error has the row.
          TypeError: The policy has no probabilities: it is deterministic, or only samples.
          ValueError: The shapes do not match.
        """
        del observations, actions
        _no_probabilities(type(self).__name__)

    def log_ratio(self, behaviour: Policy, observations: Any, actions: np.ndarray) -> np.ndarray:
        """Returns the log ratio of the probabilities of actions under this and another policy.

        Raises:
          RowError: The other policy never takes an action, so that it did not record the data.
            For further errors, see `log_prob`.
        """
        behaviour_logs = behaviour.log_prob(observations, actions)
        impossible = np.isneginf(behaviour_logs)
        if impossible.any():
            problem = f"the behaviour policy never takes {np.asarray(actions)[impossible][0]}"
            raise RowError(int(np.argmax(impossible)), "action", problem)
        return self.log_prob(observations, actions) - behaviour_logs


def _no_probabilities(name: str) -> NoReturn:
    raise TypeError(
        f"{name} has no probabilities of actions: evaluate it with a fitted Q-function, not with "
        "importance sampling."
    )


def _count_rows(observations: Any) -> int:
    """Returns the number of observations."""
    return len(next(leaf for _, leaf in named_leaves(observations)))


def _check_rows(
    is_valid: np.ndarray, field: Literal["observation", "action"], describe: Callable[[int], str]
) -> None:
    """Checks a condition for each row; `describe` returns the fault of a row."""
    rows = np.asarray(is_valid.all(axis=tuple(range(1, is_valid.ndim))))
    if not rows.all():
        row = int(np.argmin(rows))
        raise RowError(row, field, describe(row))


class CategoricalPolicy(Policy):
    """A policy of A discrete actions, the integers from 0 on.

    Args:
      log_probs: A function that returns the log-probabilities of all actions for observations,
        `[n, A]`. The function need not normalize; -inf is a probability of 0.

    >>> policy = CategoricalPolicy.from_table([[0.75, 0.25], [0.5, 0.5]])
    >>> np.exp(policy.log_prob(np.array([0, 1]), np.array([1, 1]))).tolist()
    [0.25, 0.5]
    """

    def __init__(self, log_probs: Callable[[Any], np.ndarray]) -> None:
        self._log_probs = log_probs

    @classmethod
    def from_table(cls, probabilities: Any) -> CategoricalPolicy:
        """Returns a policy for observations that are integers from 0 on.

        Args:
          probabilities: The probability of each action for each observation, `[S, A]`.

        Raises:
          ValueError: Probabilities are negative, or do not add up to 1.
        """
        table = np.asarray(probabilities, np.float64)
        if table.ndim != 2 or not table.size:
            raise ValueError(f"a table of shape {table.shape}, expected [observations, actions]")
        is_valid = (table >= 0).all(axis=1) & (abs(table.sum(axis=1) - 1.0) <= _SUM_TOLERANCE)
        if not is_valid.all():
            row = int(np.argmin(is_valid))
            raise ValueError(
                f"the probabilities for observation {row} are {table[row].tolist()}, expected "
                "numbers that are not negative and add up to 1"
            )
        with np.errstate(divide="ignore"):
            logs = np.log(table)

        def look_up(observations: Any) -> np.ndarray:
            return logs[as_indices(observations, len(logs), "observation")]

        return cls(look_up)

    def log_probs(self, observations: Any) -> np.ndarray:
        """Returns the logarithms of the probabilities of all actions, `[n, A]`, float64."""
        logits = np.asarray(self._log_probs(observations), np.float64)
        if logits.ndim != 2 or len(logits) != _count_rows(observations):
            raise ValueError(
                f"log-probabilities of shape {logits.shape}, expected "
                f"[{_count_rows(observations)}, number of actions]"
            )
        largest = logits.max(axis=-1, keepdims=True)
        # NaN, inf, and -inf for all actions cannot be normalized.
        _check_rows(
            np.isfinite(largest), "observation", lambda row: f"log-probabilities {logits[row]}"
        )
        logits = logits - largest
        return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))

    def probs(self, observations: Any) -> np.ndarray:
        """Returns the probabilities of all actions, `[n, A]`, float64."""
        return np.exp(self.log_probs(observations))

    @override
    def sample(self, observations: Any, rng: np.random.Generator) -> np.ndarray:
        bounds = np.cumsum(self.probs(observations), axis=-1)
        thresholds = rng.random((len(bounds), 1)) * bounds[:, -1:]
        return (thresholds >= bounds).sum(axis=-1)

    @override
    def mode(self, observations: Any) -> np.ndarray:
        return self.log_probs(observations).argmax(axis=-1)

    @override
    def log_prob(self, observations: Any, actions: np.ndarray) -> np.ndarray:
        logs = self.log_probs(observations)
        indices = as_indices(actions, logs.shape[1], "action")
        _check_shape(indices, (len(logs),))
        return np.take_along_axis(logs, indices[:, None], axis=-1)[:, 0]


def as_indices(values: Any, size: int, field: Literal["observation", "action"]) -> np.ndarray:
    """Returns indices from integers or, as in D4RL, floats; checks that they are below `size`."""
    indices = np.asarray(values)
    if indices.dtype.kind not in "biuf":
        raise ValueError(f"{field}s are {indices.dtype}, expected integers from 0 to {size - 1}")
    _check_rows(
        (indices >= 0) & (indices < size) & (indices == np.floor(indices)),
        field,
        lambda row: f"{indices[row]}, expected an integer from 0 to {size - 1}",
    )
    return indices.astype(np.intp)


def _check_shape(actions: np.ndarray, shape: tuple[int, ...]) -> None:
    if actions.shape != shape:
        raise ValueError(f"actions of shape {actions.shape}, but the policy's are {shape}")


class _NormalPolicy(Policy):
    """The base of policies that sample independent normal variables."""

    def __init__(self, parameters: Callable[[Any], tuple[Any, Any]]) -> None:
        self._parameters = parameters

    def parameters(self, observations: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns the means, and the logarithms of the standard deviations, `[n, A]`, float64.

        For `TanhGaussianPolicy`, they are the parameters before tanh.
        """
        outputs = self._parameters(observations)
        mean, log_std = (np.asarray(values, np.float64) for values in outputs)
        if mean.ndim != 2 or len(mean) != _count_rows(observations):
            raise ValueError(
                f"means of shape {mean.shape}, expected [{_count_rows(observations)}, length of an "
                "action]"
            )
        log_std = np.broadcast_to(log_std, mean.shape)
        _check_rows(
            np.isfinite(mean) & (log_std < _MAX_LOG_STD),
            "observation",
            lambda row: f"it has the mean {mean[row]} and the log-deviation {log_std[row]}",
        )
        return mean, log_std

    def _sample_normal(self, observations: Any, rng: np.random.Generator) -> np.ndarray:
        """Returns samples of the normal variables."""
        mean, log_std = self.parameters(observations)
        return mean + np.exp(log_std) * rng.standard_normal(mean.shape)

    def _normal_log_prob(self, observations: Any, values: np.ndarray) -> np.ndarray:
        """Returns the log-densities of values of the normal variables."""
        mean, log_std = self.parameters(observations)
        _check_shape(values, mean.shape)
        std = np.exp(log_std)
        if not std.all():
            _no_probabilities("A policy whose standard deviation is 0")
        logs = -0.5 * (((values - mean) / std) ** 2 + _LOG_2PI) - log_std
        return logs.sum(axis=-1)


class GaussianPolicy(_NormalPolicy):
    """A policy whose actions are vectors of independent normal variables.

    Args:
      parameters: A function that returns the means for observations, `[n, A]`, and the logarithms
        of the standard deviations, in a shape that broadcasts; -inf for a deterministic policy.

    >>> policy = GaussianPolicy(lambda observations: (-0.3 * observations, np.log(0.5)))
    >>> policy.mode(np.array([[1.0]])).tolist()
    [[-0.3]]
    """

    @override
    def sample(self, observations: Any, rng: np.random.Generator) -> np.ndarray:
        return self._sample_normal(observations, rng)

    @override
    def mode(self, observations: Any) -> np.ndarray:
        return self.parameters(observations)[0]

    @override
    def mean(self, observations: Any) -> np.ndarray:
        return self.parameters(observations)[0]

    @override
    def log_prob(self, observations: Any, actions: np.ndarray) -> np.ndarray:
        return self._normal_log_prob(observations, _check_actions(actions))


def _check_actions(actions: Any) -> np.ndarray:
    array = np.asarray(actions, np.float64)
    _check_rows(np.isfinite(array), "action", lambda row: f"{array[row]}, expected finite numbers")
    return array


class TanhGaussianPolicy(_NormalPolicy):
    """A policy whose actions are the tanh of independent normal variables.

    Densities are computed from the recorded actions: with z = artanh(a),

        log p(a) = sum of log N(z; mean, std) - log(1 - a²)

    Args:
      parameters: See `GaussianPolicy`; the parameters before tanh.
      clamp: The largest absolute value of an action, as artanh(1) is infinite. The default is the
        largest float32 below 1, for actions in float32. For ratios to recorded log-probabilities,
        use the value of the recorder (0.999999 for D4RL).

    >>> policy = TanhGaussianPolicy(lambda observations: (2 * observations, 0.0))
    >>> policy.log_prob(np.array([[1.0]]), np.array([[0.999]])).round(10).tolist()
    [3.675807569]
    """

    def __init__(
        self, parameters: Callable[[Any], tuple[Any, Any]], *, clamp: float = _MAX_FLOAT32_BELOW_1
    ) -> None:
        super().__init__(parameters)
        if not 0.0 < clamp < 1.0:
            raise ValueError(f"clamp must be between 0 and 1, got {clamp}")
        self._clamp = clamp

    @override
    def sample(self, observations: Any, rng: np.random.Generator) -> np.ndarray:
        return np.tanh(self._sample_normal(observations, rng))

    def mode(self, observations: Any) -> np.ndarray:
        """Returns the tanh of the mean, which is commonly called the mode."""
        return np.tanh(self.parameters(observations)[0])

    @override
    def mean(self, observations: Any) -> np.ndarray:
        return _expected_tanh(*self.parameters(observations))

    @override
    def log_prob(self, observations: Any, actions: np.ndarray) -> np.ndarray:
        z = _artanh(actions, self._clamp)
        # This form of log(1 - tanh(z)²) avoids a difference of nearly equal numbers.
        log_slope = 2.0 * (np.log(2.0) - z - np.logaddexp(0.0, -2.0 * z))
        return self._normal_log_prob(observations, z) - log_slope.sum(axis=-1)

    def log_ratio(self, behaviour: Policy, observations: Any, actions: np.ndarray) -> np.ndarray:
        """See `Policy`. The slopes of tanh cancel out if both policies are of this class."""
        if not isinstance(behaviour, TanhGaussianPolicy):
            return super().log_ratio(behaviour, observations, actions)
        z = _artanh(actions, min(self._clamp, behaviour._clamp))
        return self._normal_log_prob(observations, z) - behaviour._normal_log_prob(observations, z)


def _artanh(actions: Any, clamp: float) -> np.ndarray:
    values = np.asarray(actions, np.float64)
    _check_rows(  # The comparison is false for NaN.
        np.abs(values) <= 1.0, "action", lambda row: f"{values[row]}, expected numbers from -1 to 1"
    )
    return np.arctanh(np.clip(values, -clamp, clamp))


def _expected_tanh(mean: np.ndarray, log_std: np.ndarray) -> np.ndarray:
    """Returns the expected tanh of normal variables, with an error of about 1e-14.

    It is a trapezoidal sum, which converges exponentially for smooth functions. For large standard
    deviations, Gauss-Hermite quadrature would need far more points.
    """
    std = np.exp(log_std)
    size = min(0.5, 0.25 / max(float(std.max(initial=0.0)), 1e-3))
    points = np.arange(0.0, 8.5, max(size, 1e-3))[1:]
    weights = np.exp(-0.5 * points**2)
    total: np.ndarray = np.tanh(mean)
    for point, weight in zip(points, weights, strict=True):
        total += weight * (np.tanh(mean + point * std) + np.tanh(mean - point * std))
    total /= 1.0 + 2.0 * weights.sum()
    return total


class DeterministicPolicy(Policy):
    """A policy with one action for each observation, without probabilities.

    Args:
      function: A function that returns the actions for observations.

    >>> policy = DeterministicPolicy(lambda observations: observations.argmax(axis=1))
    >>> policy.mode(np.array([[0.0, 1.0], [3.0, 2.0]])).tolist()
    [1, 0]
    """

    def __init__(self, function: Callable[[Any], np.ndarray]) -> None:
        self._function = function

    @override
    def sample(self, observations: Any, rng: np.random.Generator) -> np.ndarray:
        del rng
        return self.mode(observations)

    @override
    def mode(self, observations: Any) -> np.ndarray:
        return np.asarray(self._function(observations))

    @override
    def mean(self, observations: Any) -> np.ndarray:
        return self.mode(observations)


class SamplerPolicy(Policy):
    """A policy that only samples actions, without probabilities.

    Args:
      function: A function that samples actions for observations with a `numpy.random.Generator`.
    """

    def __init__(self, function: Callable[[Any, np.random.Generator], np.ndarray]) -> None:
        self._function = function

    @override
    def sample(self, observations: Any, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(self._function(observations, rng))

    @override
    def mode(self, observations: Any) -> np.ndarray:
        raise TypeError(f"{type(self).__name__} only draws actions, so its mode is unknown")


class UniformPolicy(Policy):
    """A policy whose actions are uniformly distributed between bounds.

    Args:
      low: The lower bounds, `[A]`.
      high: The upper bounds, `[A]`.

    >>> policy = UniformPolicy([-1.0, -1.0], [1.0, 1.0])
    >>> policy.log_prob(np.zeros((1, 4)), np.zeros((1, 2))).round(6).tolist()
    [-1.386294]
    """

    def __init__(self, low: Any, high: Any) -> None:
        self._low, self._high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        widths = self._high - self._low
        if self._low.shape != self._high.shape or widths.ndim != 1:
            shapes = f"{self._low.shape} and {self._high.shape}"
            raise ValueError(f"bounds of the shapes {shapes}, expected vectors of one length")
        if not ((widths > 0) & np.isfinite(widths)).all():
            raise ValueError(f"bounds {self._low} and {self._high}, expected low < high")
        self._log_density = -np.log(widths).sum()

    @override
    def sample(self, observations: Any, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(self._low, self._high, (_count_rows(observations), len(self._low)))

    def mode(self, observations: Any) -> np.ndarray:
        """Returns the midpoint of the bounds."""
        return np.tile((self._low + self._high) / 2, (_count_rows(observations), 1))

    @override
    def mean(self, observations: Any) -> np.ndarray:
        return self.mode(observations)

    @override
    def log_prob(self, observations: Any, actions: np.ndarray) -> np.ndarray:
        values = _check_actions(actions)
        _check_shape(values, (_count_rows(observations), len(self._low)))
        is_inside = ((values >= self._low) & (values <= self._high)).all(axis=-1)
        return np.where(is_inside, self._log_density, -np.inf)


# --- Networks ------------------------------------------------------------------------------------

_Layer: TypeAlias = tuple[np.ndarray, np.ndarray]
_NONLINEARITIES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda values: np.maximum(values, 0.0),
    "tanh": np.tanh,
}
_LOG_STD_BOUNDS = {"gaussian": None, "tanh_gaussian": (-20.0, 2.0)}
_OUTPUT_LAYERS = ("last_fc", "last_fc_log_std")


def mlp_policy(
    arrays: Mapping[str, Any],
    *,
    log_std_bounds: tuple[float, float] | Literal["default"] | None = "default",
    clamp: float = _MAX_FLOAT32_BELOW_1,
    deterministic: bool = False,
) -> GaussianPolicy | TanhGaussianPolicy | DeterministicPolicy:
    """Returns the policy of a multilayer perceptron, from weights as in Deep-OPE and D4RL.

    Args:
      arrays: `fc0/weight`, `fc0/bias` and so on for each hidden layer, `last_fc` for the means,
        `last_fc_log_std` for the log standard deviations; weights are `[outputs, inputs]`. The dict
        also has two texts: `nonlinearity` ("relu" or "tanh") and `output_distribution` ("gaussian"
        or "tanh_gaussian").
      log_std_bounds: The limits of the log standard deviations; None for no limits. By default
        (-20, 2) for "tanh_gaussian", as in the training of these policies, and none for "gaussian".
      clamp: See `TanhGaussianPolicy`.
      deterministic: True for the means as actions, without standard deviations.

    Returns:
      A `GaussianPolicy` or a `TanhGaussianPolicy`; a `DeterministicPolicy` if requested.

    Raises:
      KeyError: An array is missing.
      ValueError: Shapes do not match, a number is NaN, or a text is unknown. The standard
        deviations are unknown, because `last_fc_log_std` is a copy of `last_fc`, as in the D4RL
        files of Adroit experts.

    >>> layer = {"weight": np.eye(2), "bias": np.zeros(2)}
    >>> arrays = {f"fc0/{name}": array for name, array in layer.items()}
    >>> arrays |= {f"last_fc/{name}": array for name, array in layer.items()}
    >>> arrays |= {"nonlinearity": "relu", "output_distribution": "gaussian"}
    >>> mlp_policy(arrays, deterministic=True).mode(np.array([[1.0, -1.0]])).tolist()
    [[1.0, 0.0]]
    """
    distribution = _parse_choice(arrays, "output_distribution", _LOG_STD_BOUNDS)
    network = _read_network(arrays, with_log_std=not deterministic)
    is_squashed = distribution == "tanh_gaussian"
    if deterministic:
        squash = np.tanh if is_squashed else np.asarray
        return DeterministicPolicy(lambda observations: squash(network(observations)[0]))
    bounds = _LOG_STD_BOUNDS[distribution] if log_std_bounds == "default" else log_std_bounds

    def parameters(observations: Any) -> tuple[np.ndarray, np.ndarray]:
        mean, log_std = network(observations)
        return mean, log_std if bounds is None else np.clip(log_std, *bounds)

    if is_squashed:
        return TanhGaussianPolicy(parameters, clamp=clamp)
    return GaussianPolicy(parameters)


def _compute_outputs(
    observations: Any,
    hidden: Sequence[_Layer],
    heads: Sequence[_Layer],
    nonlinearity: Callable[[np.ndarray], np.ndarray],
) -> tuple[np.ndarray, ...]:
    """Returns the outputs of the output layers, after the hidden layers."""
    size = (*hidden, *heads)[0][0].shape[1]
    if isinstance(observations, Mapping | tuple):
        raise TypeError(
            f"observations are nested, but the policy takes vectors of {size} numbers: pass "
            "collect a list of fields to join"
        )
    inputs = np.asarray(observations)
    if inputs.ndim != 2 or inputs.shape[1] != size:
        raise ValueError(
            f"observations of shape {inputs.shape[1:]}, but the policy takes the shape {(size,)}"
        )
    blocks = []
    for begin in range(0, max(len(inputs), 1), _BLOCK_ROWS):
        values = inputs[begin : begin + _BLOCK_ROWS].astype(np.float64)
        for weight, bias in hidden:
            values = nonlinearity(values @ weight.T + bias)
        blocks.append([values @ weight.T + bias for weight, bias in heads])
    return tuple(np.concatenate(outputs) for outputs in zip(*blocks, strict=True))


def _read_network(
    arrays: Mapping[str, Any], *, with_log_std: bool
) -> Callable[[Any], tuple[np.ndarray, ...]]:
    num_hidden = 0
    while f"fc{num_hidden}/weight" in arrays:
        num_hidden += 1
    hidden = tuple(_read_layer(arrays, f"fc{index}") for index in range(num_hidden))
    paths = [name for name in arrays if name.startswith("fc") and "/" in name]
    if len(paths) != 2 * num_hidden:
        raise ValueError(f"got the layers {sorted(paths)}, expected fc0, fc1, … without a gap")
    heads = tuple(_read_layer(arrays, name) for name in _OUTPUT_LAYERS[: 1 + with_log_std])
    for index, (before, after) in enumerate(zip(hidden, (*hidden[1:], heads[0])), 1):
        num_inputs, num_outputs = after[0].shape[1], len(before[0])
        if num_inputs != num_outputs:
            name = f"fc{index}" if index < num_hidden else _OUTPUT_LAYERS[0]
            raise ValueError(
                f"{name} takes {num_inputs} numbers, but the layer before it returns {num_outputs}"
            )
    if with_log_std:
        if heads[0][0].shape != heads[1][0].shape:
            shapes = f"{heads[0][0].shape} and {heads[1][0].shape}"
            raise ValueError(f"last_fc and last_fc_log_std differ in shape: {shapes}")
        if all(np.array_equal(mean, log_std) for mean, log_std in zip(*heads)):
            raise ValueError(
                "last_fc_log_std is a copy of last_fc, so the deviations of the actions are "
                "unknown. Pass deterministic=True to use the means."
            )
    nonlinearity = _NONLINEARITIES[_parse_choice(arrays, "nonlinearity", _NONLINEARITIES)]
    return lambda observations: _compute_outputs(observations, hidden, heads, nonlinearity)


def _read_layer(arrays: Mapping[str, Any], name: str) -> _Layer:
    layer = []
    for key, rank in (("weight", 2), ("bias", 1)):
        path = f"{name}/{key}"
        if path not in arrays:
            raise KeyError(f"no array {path!r}; {suggest_names(path, sorted(arrays))}")
        array = np.asarray(arrays[path])
        if array.dtype.kind not in "fiu" or array.ndim != rank:
            raise ValueError(
                f"{path} is {array.dtype} of shape {array.shape}, expected {rank} axes"
            )
        if not np.isfinite(array).all():
            raise ValueError(f"{path} has numbers that are not finite")
        layer.append(array.astype(np.float64))
    weight, bias = layer
    if len(weight) != len(bias):
        raise ValueError(f"{name} has {len(weight)} rows of weights and {len(bias)} biases")
    return weight, bias


def _parse_choice(arrays: Mapping[str, Any], name: str, choices: Mapping[str, Any]) -> str:
    if name not in arrays:
        raise KeyError(f"no array {name!r}; {suggest_names(name, sorted(arrays))}")
    value = arrays[name]
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    if text not in choices:
        raise ValueError(f"{name} is {text!r}, expected one of {', '.join(choices)}")
    return text
