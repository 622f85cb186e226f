"""Weighted mixtures of datasets."""

from collections.abc import Sequence

import tensorflow as tf

__all__ = ["mix"]

_CALLER = "mix"
_STOPS = ("first", "all", "never")


def mix(
    datasets: Sequence[tf.data.Dataset],
    weights: Sequence[float] | None = None,
    *,
    seed: int | None = None,
    sizes: Sequence[float] | None = None,
    stop: str = "never",
    rerandomize_each_iteration: bool = False,
) -> tf.data.Dataset:
    """Draws elements from several datasets: episodes, steps or batches, each in its order.

    The dataset of each element is drawn independently, with a probability proportional to its
    weight. So the proportions hold on average, and not within every batch. A weight counts
    elements: a dataset of episodes with longer episodes contributes more steps.

    Args:
      datasets: datasets of the same structure, shapes and dtypes.
      weights: a weight for each, all the same if not given. A dataset of weight 0 is left out.
      seed: makes the mixture the same each time; otherwise it differs.
      sizes: the size of each dataset, in any unit (`Statistics.num_transitions`): the weights are
        multiplied with them. Without weights, every step is then as likely as any other.
      stop: when the mixture ends. "first": when a drawn dataset has no more elements, so nothing
        is repeated and the proportions hold to the end. "all": when all elements of all datasets
        have been drawn once; the weights then only affect the order. "never": each dataset is
        repeated for ever.
      rerandomize_each_iteration: whether each pass over the result has another order, with a
        seed too.

    Returns:
      The mixture. It has the cardinality that follows from `stop`, if that is known; it is not
      for "first".

    Raises:
      TypeError: if the datasets differ in structure.
      ValueError: if numbers do not fit, or a dataset is known to be empty.

    >>> ones, twos = (tf.data.Dataset.from_tensors(i).repeat(300) for i in (1, 2))
    >>> drawn = [int(i) for i in mix([ones, twos], [3.0, 1.0], seed=0).take(400)]
    >>> 270 < drawn.count(1) < 330
    True
    >>> len(mix([ones, twos], stop="all"))
    600
    """
    datasets = list(datasets)
    if stop not in _STOPS:
        raise ValueError(f"{_CALLER}: stop must be one of {_STOPS}, got {stop!r}.")
    if not datasets:
        raise ValueError(f"{_CALLER}: there are no datasets.")
    numbers = [1.0] * len(datasets)
    for name, values in (("weights", weights), ("sizes", sizes)):
        if values is None:
            continue
        if len(values) != len(datasets):
            raise ValueError(
                f"{_CALLER}: there are {len(datasets)} datasets and {len(values)} {name}."
            )
        if any(not 0.0 <= weight < float("inf") for weight in values):
            raise ValueError(f"{_CALLER}: {name} must be finite and not negative, got {values}.")
        numbers = [one * float(other) for one, other in zip(numbers, values)]
    _check_elements(datasets)
    drawn = [(dataset, weight) for dataset, weight in zip(datasets, numbers) if weight > 0]
    if not drawn:
        raise ValueError(f"{_CALLER}: all weights are 0.")
    datasets = [dataset for dataset, _ in drawn]
    cardinalities = [int(dataset.cardinality()) for dataset in datasets]
    if stop == "never":
        empty = [i for i, cardinality in enumerate(cardinalities) if cardinality == 0]
        if empty:
            raise ValueError(f"{_CALLER}: the datasets at {empty} have no elements to repeat.")
        datasets = [dataset.repeat() for dataset in datasets]
    mixture = tf.data.Dataset.sample_from_datasets(
        datasets,
        weights=[weight for _, weight in drawn],
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
                f"{_CALLER}: dataset {i} has elements {spec}, but dataset 0 has {first}. Map them "
                "to the same fields first."
            ) from error
        for one, other in zip(tf.nest.flatten(first), tf.nest.flatten(spec)):
            if isinstance(one, tf.TensorSpec) and one.dtype != other.dtype:
                raise TypeError(
                    f"{_CALLER}: dataset {i} has {other}, but dataset 0 has {one}. Cast one of "
                    "them first."
                )
