"""Weighted mixtures of datasets."""

from collections.abc import Sequence

import tensorflow as tf

__all__ = ["mix"]

_FUNCTION = "mix"
_STOP_CHOICES = ("first", "all", "never")


def mix(
    datasets: Sequence[tf.data.Dataset],
    weights: Sequence[float] | None = None,
    *,
    seed: int | None = None,
    sizes: Sequence[float] | None = None,
    stop: str = "never",
    rerandomize_each_iteration: bool = False,
) -> tf.data.Dataset:
    """Draws elements from several datasets: episodes, steps or batches, in their order.

    The dataset of each element is drawn independently, with a probability proportional to its
    weight. The proportions therefore hold on average, not within every batch. A weight counts
    elements: a dataset with longer episodes contributes more steps.

    Args:
      datasets: datasets of the same structure, shapes and dtypes.
      weights: the weight of each dataset; all equal by default. A dataset of weight 0 is not used.
      seed: the seed of a reproducible mixture; if None, each mixture is different.
      sizes: the size of each dataset, in any unit (`Statistics.num_transitions`): factors of the
        weights. Without weights, all steps are then equally likely.
      stop: the end of the mixture. "first": when a drawn dataset has no more elements, so no
        element is repeated and the proportions hold to the end. "all": when all elements of all
        datasets have been drawn once; the weights then only affect the order. "never": each dataset
        repeats endlessly.
      rerandomize_each_iteration: whether each pass over the result has another order, also with a
        seed.

    Returns:
      The mixture. The cardinality is unknown for "first".

    Raises:
      TypeError: if the datasets differ in structure.
      ValueError: if weights or sizes are invalid, or a dataset is empty.

    >>> ones, twos = (tf.data.Dataset.from_tensors(i).repeat(300) for i in (1, 2))
    >>> drawn = [int(i) for i in mix([ones, twos], [3.0, 1.0], seed=0).take(400)]
    >>> 270 < drawn.count(1) < 330
    True
    >>> len(mix([ones, twos], stop="all"))
    600
    """
    datasets = list(datasets)
    if stop not in _STOP_CHOICES:
        raise ValueError(f"{_FUNCTION}: stop must be one of {_STOP_CHOICES}, got {stop!r}.")
    if not datasets:
        raise ValueError(f"{_FUNCTION}: there are no datasets.")
    factors = [1.0] * len(datasets)
    for name, values in (("weights", weights), ("sizes", sizes)):
        if values is None:
            continue
        if len(values) != len(datasets):
            raise ValueError(f"{_FUNCTION}: got {len(values)} {name} for {len(datasets)} datasets.")
        if any(not 0.0 <= weight < float("inf") for weight in values):
            raise ValueError(f"{_FUNCTION}: {name} must be finite and not negative, got {values}.")
        factors = [factor * float(value) for factor, value in zip(factors, values)]
    _check_elements(datasets)
    weighted = [(dataset, weight) for dataset, weight in zip(datasets, factors) if weight > 0]
    if not weighted:
        raise ValueError(f"{_FUNCTION}: all weights are 0.")
    datasets = [dataset for dataset, _ in weighted]
    cardinalities = [int(dataset.cardinality()) for dataset in datasets]
    if stop == "never":
        empty = [i for i, cardinality in enumerate(cardinalities) if cardinality == 0]
        if empty:
            raise ValueError(f"{_FUNCTION}: the datasets at {empty} have no elements to repeat.")
        datasets = [dataset.repeat() for dataset in datasets]
    mixture = tf.data.Dataset.sample_from_datasets(
        datasets,
        weights=[weight for _, weight in weighted],
        seed=seed,
        stop_on_empty_dataset=stop == "first",
        rerandomize_each_iteration=rerandomize_each_iteration,
    )
    if stop == "all" and min(cardinalities) >= 0:
        mixture = mixture.apply(tf.data.experimental.assert_cardinality(sum(cardinalities)))
    return mixture


def _check_elements(datasets: Sequence[tf.data.Dataset]) -> None:
    first = datasets[0].element_spec
    for i, dataset in enumerate(datasets):
        spec = dataset.element_spec
        try:
            tf.nest.assert_same_structure(first, spec)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{_FUNCTION}: dataset {i} has elements {spec}, but dataset 0 has {first}. Map "
                "them to the same fields first."
            ) from error
        for first_leaf, leaf in zip(tf.nest.flatten(first), tf.nest.flatten(spec)):
            if isinstance(first_leaf, tf.TensorSpec) and first_leaf.dtype != leaf.dtype:
                raise TypeError(
                    f"{_FUNCTION}: dataset {i} has {leaf}, but dataset 0 has {first_leaf}. Cast "
                    "one of them first."
                )
