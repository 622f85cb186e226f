"""Reading of RLDS datasets of TFDS, in either layout, with only the requested fields."""

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

import tfds_files
from rlds import rlds_types
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.nests import suggest_fields

__all__ = ["load"]

_LAYOUTS = ("batched", "nested")

# Without this field, the action of the last step would count as a placeholder.
_EPISODE_FLAGS = (rlds_types.FINAL_OBSERVATION_KNOWN,)


def load(
    path_or_builder: Any,
    split: str = "train",
    *,
    layout: str = "batched",
    fields: Collection[str] | None = None,
    episode_fields: Collection[str] | None = None,
    decode: bool | Collection[str] = True,
    shuffle_files: bool = False,
    read_config: tfds.ReadConfig | None = None,
) -> tf.data.Dataset:
    """Returns the episodes of a dataset.

    In the batched layout, `steps` is one dict of tensors with a leading time axis; this is many
    times faster than the nested layout, where `steps` is a dataset. All values are decoded, and
    equal to the values of TFDS. A sequence inside a step is a `RaggedTensor` in the batched layout.
    Tensors and images without a fixed shape can be batched if all steps of an episode have one
    shape; otherwise use the nested layout.

    Without `shuffle_files` the episodes are in their stored order, or in the order of
    `read_config`. Iterators over the dataset can be checkpointed.

    Args:
      path_or_builder: A directory with a dataset, or with a single dataset below it, such as
        "data/catch" for "data/catch/1.0.0"; the name of a dataset as for `tfds.builder`; or a
        builder.
      split: The split to read: 'train', 'train[:10%]', 'train+test', ...
      layout: 'batched' or 'nested'.
      fields: The fields of a step to read, such as 'action', 'observation/image', or 'observation'
        for all nested fields; None for all. Other fields are not parsed. The flags `is_first`,
        `is_last` and `is_terminal` are always read, as transformations and statistics need them.
      episode_fields: The fields of an episode to read, besides `steps`. `final_observation_known`
        is always read.
      decode: Whether to decode images and encoded tensors; otherwise, they are stored strings.
        Names of fields of a step decode only these fields.
      shuffle_files: Whether to read the files in a random order.
      read_config: See `tfds.ReadConfig`. Not for ArrayRecord files.

    Raises:
      FileNotFoundError: There is no such directory, and no such dataset.
      KeyError: There is no such field; the message lists the fields.
      ValueError: The dataset has no steps, or an argument is invalid.
    """
    if layout not in _LAYOUTS:
        raise ValueError(f"load: layout must be one of {_LAYOUTS}, got {layout!r}")
    builder = _open_builder(path_or_builder)
    features = builder.info.features
    is_dict = isinstance(features, tfds.features.FeaturesDict)
    steps = features[rlds_types.STEPS] if is_dict and rlds_types.STEPS in features else None
    if not isinstance(steps, tfds.features.Dataset):
        raise ValueError(
            f"load: {builder.name} has no RLDS episodes: no nested dataset {rlds_types.STEPS!r} "
            f"among its features {features}"
        )
    if split in builder.info.splits and not builder.info.splits[split].num_examples:
        raise ValueError(f"load: the split {split!r} of {builder.data_path} has no episodes")
    episode_features = tfds.features.FeaturesDict(
        {name: feature for name, feature in features.items() if name != rlds_types.STEPS}
    )
    step_features = _select(steps.feature, fields, "fields", rlds_types.STEP_FLAGS)
    episode_features = _select(episode_features, episode_fields, "episode_fields", _EPISODE_FLAGS)
    decoders = _find_decoders(episode_features, _list_names(episode_features, True))
    if step_decoders := _find_decoders(step_features, _list_names(step_features, decode)):
        decoders[rlds_types.STEPS] = step_decoders
    container = tfds.features.Sequence if layout == "batched" else tfds.features.Dataset
    selected = tfds.features.FeaturesDict(
        {**dict(episode_features.items()), rlds_types.STEPS: container(step_features)}
    )
    if builder.info.file_format == tfds.core.FileFormat.ARRAY_RECORD:
        if read_config is not None:
            raise ValueError("load: read_config is not supported for ArrayRecord files")
        return _from_array_records(builder, split, selected, decoders, shuffle=shuffle_files)
    if read_config is None:
        # The cache is off because decoded images may be many times larger than the files, and
        # checkpoints of an iterator would include the cache.
        read_config = tfds.ReadConfig(try_autocache=False)
        if not shuffle_files:
            read_config.interleave_cycle_length = 1
    return builder.as_dataset(
        split=split,
        decoders=_SelectedFeatures(selected, decoders),
        shuffle_files=shuffle_files,
        read_config=read_config,
    )


class _SelectedFeatures(tfds.decode.PartialDecoding):  # type: ignore[misc]
    """A decoding of TFDS with selected features instead of the features of the dataset.

    Batched steps are read as a `Sequence`, which has the same storage as a nested `Dataset`.
    """

    def extract_features(self, features: Any) -> Any:
        del features
        return self._feature_specs


class _StoredDecoder(tfds.decode.SkipDecoding):  # type: ignore[misc]
    """Returns stored values undecoded, as a whole."""

    def decode_batch_example(self, serialized_example: Any) -> Any:
        return serialized_example

    def decode_ragged_example(self, serialized_example: Any) -> Any:
        return serialized_example


class _RowDecoder(tfds.decode.Decoder):  # type: ignore[misc]
    """Decodes images and tensors one by one; in an episode, all have the same shape.

    Args:
      path: The field, for errors.
    """

    def __init__(self, path: str = "") -> None:
        super().__init__()
        self._path = path

    def decode_example(self, serialized_example: Any) -> Any:
        return self.feature.decode_example(serialized_example)

    def decode_batch_example(self, serialized_example: Any) -> tf.Tensor:
        def decode_all() -> tf.Tensor:
            first_example = tf.nest.map_structure(lambda rows: rows[0], serialized_example)
            shape = tf.shape(self.decode_example(first_example))

            def decode(example: Any) -> tf.Tensor:
                value = self.decode_example(example)
                error = f"load: {self._path} has several shapes in an episode: pass layout='nested'"
                with tf.control_dependencies(
                    [tf.debugging.assert_equal(tf.shape(value), shape, message=error)]
                ):
                    return tf.identity(value)

            return tf.map_fn(decode, serialized_example, fn_output_signature=self._dtype)

        rows = tf.nest.flatten(serialized_example)[0]
        shape = self.feature.shape
        values = tf.cond(
            tf.shape(rows)[0] > 0,
            decode_all,
            lambda: tf.zeros([0, *(size or 0 for size in shape)], self._dtype),
        )
        return tf.ensure_shape(values, [None, *shape])

    @property
    def _dtype(self) -> tf.DType:
        return tf.as_dtype(self.feature.tf_dtype)


class _RawDecoder(_RowDecoder):
    """Decodes tensors that are stored as bytes.

    TFDS decodes such tensors row by row, fails without rows if the shape is unknown, and emits a
    warning each time.
    """

    def decode_example(self, serialized_example: Any) -> Any:
        if None not in self.feature.shape:
            return tf.reshape(self._decode_raw(serialized_example), self.feature.shape)
        return self.feature.decode_example(serialized_example)

    def decode_batch_example(self, serialized_example: Any) -> tf.Tensor:
        if None not in self.feature.shape:
            num_rows = tf.shape(serialized_example)[0]
            shape = self.feature.shape
            values = tf.reshape(self._decode_raw(serialized_example), [num_rows, *shape])
            return tf.ensure_shape(values, [None, *shape])
        return super().decode_batch_example(serialized_example)

    def _decode_raw(self, serialized: tf.Tensor) -> tf.Tensor:
        if self.feature.to_json_content().encoding == tfds.features.Encoding.ZLIB.value:
            serialized = tf.io.decode_compressed(serialized, "ZLIB")
        dtype = self.feature.tf_dtype
        values = tf.io.decode_raw(serialized, tf.int64 if dtype == tf.uint64 else dtype)
        return tf.bitcast(values, tf.uint64) if dtype == tf.uint64 else values


def _open_builder(path_or_builder: Any) -> tfds.core.DatasetBuilder:
    if isinstance(path_or_builder, tfds.core.DatasetBuilder):
        return path_or_builder
    path = stores.as_path(path_or_builder)
    if os.fspath(path).startswith("s3://"):
        raise ValueError(f"load: {path}: TensorFlow cannot read s3://; copy the dataset to a disk")
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return tfds.builder_from_directory(tfds_files.find_folder(path))
    try:
        return tfds.builder(os.fspath(path_or_builder))
    except (tfds.core.DatasetNotFoundError, ValueError) as e:
        raise FileNotFoundError(
            f"load: {os.fspath(path_or_builder)!r} is neither a directory with a dataset_info.json "
            "nor the name of a TFDS dataset"
        ) from e


def leaves_of_features(features: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the leaf features, with their paths."""
    for name, feature in features.items():
        child_path = f"{path}/{name}" if path else name
        if type(feature) is tfds.features.FeaturesDict:
            yield from leaves_of_features(feature, child_path)
        else:
            yield child_path, feature


def _list_names(features: Any, decode: bool | Collection[str]) -> set[str]:
    """Returns the paths of the leaves to decode."""
    leaves = dict(leaves_of_features(features))
    if isinstance(decode, bool):
        return set(leaves) if decode else set()
    selected = _select(features, decode, "decode") if decode else {}
    return {path for path, _ in leaves_of_features(selected)}


def _select(
    features: Any, paths: Collection[str] | None, argument: str, always: Iterable[str] = ()
) -> Any:
    """Selects the features at and below paths, and the features in `always`."""
    if paths is None:
        return features
    if isinstance(paths, str):
        raise ValueError(f"load: {argument} must be a list of names, got the string {paths!r}")
    leaves = dict(leaves_of_features(features))
    selected = leaves.keys() & always
    for path in paths:
        matches = {leaf for leaf in leaves if leaf == path or leaf.startswith(f"{path}/")}
        if not matches:
            hint = suggest_fields(path, sorted(leaves))
            raise KeyError(f"load: {argument}: no field {path!r}; {hint}")
        selected |= matches
    return _keep(features, selected)


def _keep(features: Any, leaves: set[str], path: str = "") -> Any:
    selected = {}
    for name, feature in features.items():
        child_path = f"{path}/{name}" if path else name
        if type(feature) is not tfds.features.FeaturesDict:
            if child_path in leaves:
                selected[name] = feature
        elif any(leaf.startswith(f"{child_path}/") for leaf in leaves):
            selected[name] = _keep(feature, leaves, child_path)
    return tfds.features.FeaturesDict(selected)


def _find_decoders(features: Any, decoded: set[str], path: str = "") -> dict[str, Any]:
    """Returns decoders for features that TFDS decodes incorrectly or slowly."""
    decoders: dict[str, Any] = {}
    for name, feature in features.items():
        child_path = f"{path}/{name}" if path else name
        decoder: Any = None
        if type(feature) is tfds.features.FeaturesDict:
            decoder = _find_decoders(feature, decoded, child_path)
        elif child_path not in decoded:
            decoder = _StoredDecoder()
        elif _is_raw(feature):
            decoder = _RawDecoder(child_path)
        elif type(feature) is tfds.features.Image and None in feature.shape:
            decoder = _RowDecoder(child_path)
        if decoder:
            decoders[name] = decoder
    return decoders


def _is_raw(feature: Any) -> bool:
    """Returns True if a feature holds tensors stored as bytes."""
    if type(feature) not in (tfds.features.Tensor, tfds.features.Scalar):
        return False
    info = feature.get_serialized_info()
    value = info["value"] if isinstance(info, dict) else info
    return bool(np.dtype(value.np_dtype) == object and np.dtype(feature.np_dtype) != object)


def _from_array_records(
    builder: tfds.core.DatasetBuilder, split: str, features: Any, decoders: Any, *, shuffle: bool
) -> tf.data.Dataset:
    """Reads ArrayRecord files, which TFDS can only read as NumPy."""
    source = builder.as_data_source(
        split, deserialize_method=tfds.decode.DeserializeMethod.RAW_BYTES
    )
    dataset = tf.data.Dataset.range(len(source))
    if shuffle:
        dataset = dataset.shuffle(len(source))

    def read(index: tf.Tensor) -> Any:
        # Declared as stateless, as iterators over stateful functions cannot be checkpointed.
        example = tf.numpy_function(
            lambda i: bytes(source[int(i)]), [index], tf.string, stateful=False
        )
        return features.deserialize_example(tf.ensure_shape(example, []), decoders=decoders)

    return dataset.map(read, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
