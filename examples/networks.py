"""Small neural networks in NumPy, for the examples: they start at once, and repeat by the digit.

For larger ones, take PyTorch, JAX or Keras: the feeds are the same.
"""

import copy
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

__all__ = ["Adam", "Network"]


class Network:
    """Layers with `tanh` between them, in float32.

    Args:
      sizes: The sizes of the inputs, of each hidden layer, and of the outputs.
      rng: Draws the first weights.
      bounded: Whether what comes out is between -1 and 1, by another `tanh`.

    Attributes:
      parameters: All weights and biases, in one vector that you may change in place.

    >>> network = Network([3, 8, 1], np.random.default_rng(0))
    >>> network(np.zeros((5, 3), np.float32)).shape
    (5, 1)
    """

    def __init__(
        self, sizes: Sequence[int], rng: np.random.Generator, bounded: bool = False
    ) -> None:
        self._shapes = [(before + 1, after) for before, after in pairwise(sizes)]
        self._bounded = bounded
        self.parameters = np.zeros(sum(n * m for n, m in self._shapes), np.float32)
        self._layers = self._split(self.parameters)
        for layer in self._layers:
            layer[:-1] = rng.normal(0.0, (len(layer) - 1) ** -0.5, layer[:-1].shape)

    def _split(self, vector: np.ndarray) -> list[np.ndarray]:
        """Splits a vector into the layers: weights, and biases as the last row."""
        ends = np.cumsum([n * m for n, m in self._shapes])
        return [
            vector[end - n * m : end].reshape(n, m)
            for end, (n, m) in zip(ends, self._shapes, strict=True)
        ]

    def copy(self) -> "Network":
        """A network with the same parameters, that changes by itself."""
        other = copy.copy(self)
        other.parameters = self.parameters.copy()
        other._layers = other._split(other.parameters)
        return other

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """Returns the outputs of the network for a batch of inputs."""
        return self.forward(inputs)[-1]

    def forward(self, inputs: np.ndarray) -> list[np.ndarray]:
        """The inputs, what each hidden layer makes of them, and what comes out: see `backward`."""
        values = [np.asarray(inputs, np.float32)]
        for index, layer in enumerate(self._layers, 1):
            value = values[-1] @ layer[:-1] + layer[-1]
            if self._bounded or index < len(self._layers):
                np.tanh(value, out=value)
            values.append(value)
        return values

    def backward(
        self, values: list[np.ndarray], slope: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Backpropagation: returns the gradients of a loss by the parameters, and by the inputs.

        Args:
          values: The result of `forward`.
          slope: The gradient of the loss by the outputs.

        Returns:
          A vector such as `parameters`, and an array such as the inputs.
        """
        gradient = np.empty_like(self.parameters)
        for index, block in reversed(list(enumerate(self._split(gradient)))):
            if self._bounded or index + 1 < len(self._layers):
                slope = slope * (1.0 - values[index + 1] ** 2)  # The slope of `tanh`.
            np.matmul(values[index].T, slope, out=block[:-1])
            block[-1] = slope.sum(axis=0)
            slope = slope @ self._layers[index][:-1].T
        return gradient, slope


class Adam:
    """Changes the parameters of a network so that its loss gets smaller.

    It is the method of Kingma and Ba (2015), with their constants.
    """

    def __init__(self, network: Network, learning_rate: float = 1e-3) -> None:
        self._parameters, self._learning_rate = network.parameters, learning_rate
        self._mean = np.zeros_like(network.parameters)
        self._square = np.zeros_like(network.parameters)
        self._count = 0

    def step(self, gradient: np.ndarray) -> None:
        """Takes a step against a gradient."""
        self._count += 1
        self._mean += 0.1 * (gradient - self._mean)
        self._square += 0.001 * (gradient**2 - self._square)
        rate = self._learning_rate * np.sqrt(1 - 0.999**self._count) / (1 - 0.9**self._count)
        self._parameters -= np.float32(rate) * self._mean / (np.sqrt(self._square) + 1e-8)
