"""Fast decoding of many TFDS episodes at once, to columns of all steps."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from rlds import rlds_types
from rlds.tfds import loading

__all__ = ["JoinedEpisodes", "can_be_joined"]

# The dtypes of numbers in a `tf.train.Example`.
_STORED_DTYPES = {"b": tf.int64, "i": tf.int64, "u": tf.int64, "f": tf.float32, "O": tf.string}


def can_be_joined(features: Any) -> bool:
    """Returns True if the values of each field have one shape, both stored and decoded.

    Images that are not decoded may differ in shape. A field of episodes may have any number of
    rows, if the rows are not compressed.
    """
    row_features = _join_features(features)
    serialized = tfds.core.utils.flatten_nest_dict(row_features.get_serialized_info()).values()
    decoded_infos = [
        info
        for _, feature in loading.leaves_of_features(_elements(row_features))
        if not isinstance(feature, (tfds.features.Image, _Rows))
        for info in tf.nest.flatten(feature.get_tensor_info())
    ]
    return all(None not in info.shape and not info.optional for info in decoded_infos) and all(
        info.sequence_rank == 1
        and None not in info.shape[1:]
        and np.dtype(info.np_dtype).kind in _STORED_DTYPES
        for info in serialized
    )


class JoinedEpisodes:
    """Decodes the examples of several episodes at once.

    TFDS decodes one joined example, where the fields of all episodes are rows, like steps.

    Args:
      features: The features of an episode, see `can_be_joined`.
      decode: The fields of a step to decode; other fields are returned as stored strings.
    """

    def __init__(self, features: tfds.features.FeaturesDict, decode: Collection[str]) -> None:
        self._features = _join_features(features)
        self._decoders = loading._find_decoders(
            _elements(self._features),
            {f"{rlds_types.STEPS}/{field}" for field in decode}
            | {
                name for name, _ in loading.leaves_of_features(features) if name != rlds_types.STEPS
            },
        )
        self._infos = tfds.core.utils.flatten_nest_dict(self._features.get_serialized_info())
        elements = dict(loading.leaves_of_features(_elements(self._features)))
        self._rows = {
            name: elements[name]
            for name, feature in loading.leaves_of_features(features)
            if _has_rows(feature)
        }
        # The function is concrete because TensorFlow warns of functions with five traces.
        self._decode = tf.function(
            self._parse_and_decode,
            autograph=False,  # No control flow depends on tensors; rewriting takes half a second.
        ).get_concrete_function(tf.TensorSpec([None], tf.string))

    def decode(self, examples: Sequence[bytes]) -> tuple[dict[str, Any], np.ndarray]:
        """Returns the columns of all steps and of the episode fields, and the episode lengths.

        Args:
          examples: The bytes of the episodes.

        Returns:
          The fields of episodes as columns with a row for each episode, or a list if an episode may
          have any number of rows; in `steps`, columns with a row for each step. The second value is
          the number of steps of each episode, of shape `[num_episodes]`.

        Raises:
          ValueError: A field of an example has a wrong number of values.
        """
        decoded, counts, sizes = self._decode(tf.constant(list(examples), tf.string))
        is_step_field = {name: name.startswith(f"{rlds_types.STEPS}/") for name in counts}
        rows = {
            name: count.numpy() / np.prod(self._infos[name].shape[1:], dtype=np.int64)
            for name, count in counts.items()
        }
        lengths = next(rows[name] for name in rows if is_step_field[name])
        for name, num_rows in rows.items():
            expected = lengths if is_step_field[name] else np.ones(len(examples))
            if not np.array_equal(num_rows, expected):
                raise ValueError(f"{name}: got {num_rows} rows, expected {expected}")
        columns = {
            name: tensor.numpy()
            for name, tensor in tfds.core.utils.flatten_nest_dict(decoded).items()
        }
        for name, row in self._rows.items():
            num_rows, remainder = np.divmod(sizes[name].numpy(), _row_size(row))
            if np.any(remainder):
                raise ValueError(
                    f"{name}: got {sizes[name]} values, expected multiples of {_row_size(row)}"
                )
            columns[name] = np.split(columns[name], np.cumsum(num_rows)[:-1])
        return tfds.core.utils.pack_as_nest_dict(columns, decoded), lengths.astype(np.int64)

    def _parse_and_decode(self, examples: tf.Tensor) -> Any:
        parsed = tf.io.parse_example(
            examples,
            {
                name: tf.io.RaggedFeature(_STORED_DTYPES[np.dtype(info.np_dtype).kind])
                for name, info in self._infos.items()
            },
        )
        values = {name: _restore(parsed[name], info) for name, info in self._infos.items()}
        nested = tfds.core.utils.pack_as_nest_dict(values, self._features.get_serialized_info())
        counts = {name: tf.cast(parsed[name].row_lengths(), tf.int64) for name in self._infos}
        sizes = {
            name: tf.strings.length(parsed[name].flat_values)
            if isinstance(row, _Rows)
            else counts.pop(name)
            for name, row in self._rows.items()
        }
        return self._features.decode_example(nested, decoders=self._decoders), counts, sizes


class _Rows(tfds.features.Tensor):  # type: ignore[misc]
    """A feature with rows stored as bytes for each episode, decoded for all episodes at once."""

    def decode_batch_example(self, serialized_example: Any) -> Any:
        decoder = loading._RawDecoder()
        decoder.setup(feature=self)
        values = decoder._decode_raw(tf.strings.reduce_join(serialized_example))
        return tf.reshape(values, [-1, *self.shape[1:]])


def _has_rows(feature: Any) -> bool:
    """Returns True if a feature has a variable number of rows of one size, which can be joined."""
    return (
        type(feature) is tfds.features.Tensor
        and feature.shape[:1] == (None,)
        and None not in feature.shape[1:]
        and 0 not in feature.shape
        and feature.to_json_content().encoding != tfds.features.Encoding.ZLIB.value
    )


def _row_size(row: Any) -> int:
    """Returns the number of values, or bytes, of a row."""
    if isinstance(row, _Rows):
        return int(np.prod(row.shape[1:])) * np.dtype(row.np_dtype).itemsize
    return int(np.prod(row.shape))


def _restore(values: tf.RaggedTensor, info: Any) -> tf.Tensor:
    """Returns the values of a field of all episodes, in its shape and dtype."""
    rows = tf.reshape(values.flat_values, [-1, *info.shape[1:]])
    return rows if rows.dtype == info.tf_dtype else tf.cast(rows, info.tf_dtype)


def _join_features(features: tfds.features.FeaturesDict) -> tfds.features.FeaturesDict:
    """Returns the features of an example with the fields of several episodes."""
    return tfds.features.FeaturesDict(
        {
            name: tfds.features.Sequence(
                feature.feature if name == rlds_types.STEPS else _list_row_features(feature)
            )
            for name, feature in features.items()
        }
    )


def _list_row_features(feature: Any) -> Any:
    """Returns the features of a single row."""
    if type(feature) is tfds.features.FeaturesDict:
        return {name: _list_row_features(child) for name, child in feature.items()}
    if not _has_rows(feature):
        return feature
    if loading._is_raw(feature):
        return _Rows(shape=feature.shape, dtype=feature.np_dtype, encoding="bytes")
    return tfds.features.Tensor(shape=feature.shape[1:], dtype=feature.np_dtype)


def _elements(joined: tfds.features.FeaturesDict) -> tfds.features.FeaturesDict:
    return tfds.features.FeaturesDict({name: sequence.feature for name, sequence in joined.items()})
