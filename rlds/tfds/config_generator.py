"""Generation of TFDS features from data, or from specs of data."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from rlds import rlds_types
from rlds.formats.tfds.features import AS_NUMBERS
from rlds.transformations import _layouts

__all__ = ["extract_feature_from_data", "generate_config_from_spec"]

_IMAGE_NAMES = ("image", "img", "rgb", "pixel", "camera")
_IMAGE_ENCODINGS = ("png", "jpeg")
# Dtypes that TFDS stores as numbers, and dtypes that it can only store as raw bytes.
_NUMBER_DTYPES = [*AS_NUMBERS, "float64"]
_RAW_BYTES_DTYPES = ["bfloat16", "complex64", "complex128"]


def extract_feature_from_data(
    data: Any,
    use_images: bool,
    image_encoding: str | None,
    field_name: str | None = None,
    squeeze_scalars: bool = True,
    convert_tuple_to_list: bool = False,
    tensor_encoding: tfds.features.Encoding = tfds.features.Encoding.ZLIB,
) -> Any:
    """Returns the TFDS feature of example data or of a spec.

    =============================================  ===================================
    data                                           feature
    =============================================  ===================================
    a dict                                         `FeaturesDict`
    a list, or a tuple if `convert_tuple_to_list`  `Sequence`; all elements are alike
    an image, see below                            `Image`
    a string                                       `Text`
    strings                                        `Tensor` of strings
    another scalar                                 its dtype
    another array                                  `Tensor` in `tensor_encoding`
    =============================================  ===================================

    Python's numbers have the dtypes of NumPy: int64, float64, bool. TFDS rounds a float64 to 32
    bits, except in an encoded array; `EpisodeWriter` prevents this. Complex numbers and bfloat16
    are encoded as bytes if `tensor_encoding` is none, as TFDS cannot store them otherwise; uint32
    is not encoded, as TensorFlow cannot decode it.

    An image is an array of shape `(height, width, channels)` with 1, 3 or 4 channels of uint8 or
    uint16, or one channel of float32. The path of an image must contain "image", "img", "rgb",
    "pixel" or "camera", in any case, or the image must be the whole observation. Images that JPEG
    cannot hold (4 channels, or not uint8) are stored as PNG, which is lossless. A scalar string is
    an encoded image if its name contains one of these words; Python's `str` is always text.

    Args:
      data: An array, tensor, number or string, a spec (anything with shape and dtype), or a nest
        of them.
      use_images: Whether to use `Image` for images.
      image_encoding: The encoding of images: 'png', or 'jpeg', which is lossy.
      field_name: The name of the data, or its path of enclosing fields, separated by slashes.
      squeeze_scalars: Whether an array of shape `(1,)` counts as a scalar. The scalar feature takes
        no arrays.
      convert_tuple_to_list: Whether to treat tuples as lists; otherwise they are an error.
      tensor_encoding: The encoding of arrays.

    Raises:
      ValueError: TFDS cannot hold the data; the message names the field and the reason.

    >>> extract_feature_from_data({"rgb": np.zeros((8, 8, 3), np.uint8), "speed": 0.5}, True, "png")
    FeaturesDict({
        'rgb': Image(shape=(8, 8, 3), dtype=uint8),
        'speed': float64,
    })
    """
    path = field_name or ""
    extract = functools.partial(
        extract_feature_from_data,
        use_images=use_images,
        image_encoding=image_encoding,
        squeeze_scalars=squeeze_scalars,
        convert_tuple_to_list=convert_tuple_to_list,
        tensor_encoding=tensor_encoding,
    )
    if isinstance(data, Mapping):
        return tfds.features.FeaturesDict(
            {
                name: extract(child, field_name=f"{path}/{name}" if path else name)
                for name, child in data.items()
            }
        )
    if isinstance(data, tuple) and not convert_tuple_to_list:
        raise ValueError(
            f"{_label(path)} is a tuple, which TFDS does not support; use a dict, or a list if "
            "all elements have one type (convert_tuple_to_list=True)."
        )
    if isinstance(data, list | tuple):
        return tfds.features.Sequence(_join_features(data, path, extract))
    shape, dtype = _read_shape_and_dtype(data, path)
    if use_images and not isinstance(data, str):
        encoding = _choose_image_encoding(shape, dtype, path, image_encoding)
        if encoding is not None:
            return tfds.features.Image(
                shape=shape or None, dtype=None if not shape else dtype, encoding_format=encoding
            )
    if shape == () or (squeeze_scalars and shape == (1,)):
        if dtype == tf.string:
            return tfds.features.Text()
        if dtype.name not in _RAW_BYTES_DTYPES:
            return dtype
        shape = ()
    encoding = _choose_tensor_encoding(shape, dtype, path, tensor_encoding)
    return tfds.features.Tensor(shape=shape, dtype=dtype, encoding=encoding)


def generate_config_from_spec(
    episode_spec: Any,
    name: str = "default_config",
    use_images: bool = True,
    image_encoding: str = "png",
    *,
    squeeze_scalars: bool = False,
    convert_tuple_to_list: bool = False,
    tensor_encoding: tfds.features.Encoding = tfds.features.Encoding.ZLIB,
) -> tfds.rlds.rlds_base.DatasetConfig:
    """Returns the description of a dataset of episodes with a spec, for `EpisodeWriter`.

    Args:
      episode_spec: The spec of an episode, such as the `element_spec` of a dataset of episodes, or
        an episode. The steps are in either layout, or a list, whose first step is used. Core fields
        of a step are optional; all other fields of the step are step metadata. All fields of the
        episode except for `steps` are episode metadata.
      name: The name of the dataset.
      use_images: See `extract_feature_from_data`, also for the following arguments.
      image_encoding: The encoding of images.
      squeeze_scalars: Whether arrays of shape `(1,)` count as scalars.
      convert_tuple_to_list: Whether to treat tuples as lists.
      tensor_encoding: The encoding of arrays. With `tfds.features.Encoding.NONE`, small arrays of
        float32 or integers are written and read several times faster.

    Raises:
      KeyError: There are no steps.
      ValueError: See `extract_feature_from_data`.

    >>> steps = {"observation": np.zeros((5, 3), np.float32), "is_first": np.zeros(5, bool)}
    >>> config = generate_config_from_spec({"steps": steps, "id": 1}, name="example")
    >>> config.observation_info, config.action_info, config.episode_metadata_info
    (Tensor(shape=(3,), dtype=float32), None, {'id': tf.int64})
    """
    if not isinstance(episode_spec, Mapping) or rlds_types.STEPS not in episode_spec:
        names = list(episode_spec) if isinstance(episode_spec, Mapping) else episode_spec
        raise KeyError(
            f"generate_config_from_spec: the episode has no field {rlds_types.STEPS!r}, it has "
            f"{names}."
        )
    step_spec = _step_spec(episode_spec[rlds_types.STEPS])

    def extract(fields: Mapping[str, Any]) -> dict[str, Any]:
        return {
            field: extract_feature_from_data(
                value,
                use_images,
                image_encoding,
                field,
                squeeze_scalars,
                convert_tuple_to_list,
                tensor_encoding,
            )
            for field, value in fields.items()
        }

    fields = {key: value for key, value in step_spec.items() if key not in rlds_types.STEP_FLAGS}
    episode_fields = {key: value for key, value in episode_spec.items() if key != rlds_types.STEPS}
    return config_of_features(extract(fields), extract(episode_fields), name=name)


def config_of_features(
    step: Mapping[str, Any], episode: Mapping[str, Any], **config_args: Any
) -> tfds.rlds.rlds_base.DatasetConfig:
    """Returns the config of a dataset, by features of steps (without flags) and of episodes."""
    names = (rlds_types.OBSERVATION, rlds_types.ACTION, rlds_types.REWARD, rlds_types.DISCOUNT)
    core = {f"{name}_info": step.get(name) for name in names}
    metadata = {name: feature for name, feature in step.items() if name not in names}
    return tfds.rlds.rlds_base.DatasetConfig(
        **core, **config_args, step_metadata_info=metadata, episode_metadata_info=dict(episode)
    )


def _step_spec(steps: Any) -> Mapping[str, Any]:
    """Returns the spec of a step, or a step."""
    if isinstance(steps, tf.data.Dataset | tf.data.DatasetSpec):
        steps = steps.element_spec
    elif isinstance(steps, Mapping):
        if not any(isinstance(leaf, tf.TypeSpec) for leaf in tf.nest.flatten(steps)):
            batch = _layouts.as_tensors(steps)
            steps = tf.nest.map_structure(tf.type_spec_from_value, batch)
        steps = _layouts.spec_without_time(steps)
    elif isinstance(steps, list | tuple) and steps:
        steps = steps[0]
    if not isinstance(steps, Mapping):
        raise ValueError(
            "generate_config_from_spec: expected steps that are dicts, as a tf.data.Dataset, one "
            f"batch or a list that is not empty; got {steps!r:.200}"
        )
    return steps


def _join_features(data: Any, path: str, extract: Any) -> Any:
    if not data:
        raise ValueError(
            f"{_label(path)} is an empty {type(data).__name__}, so the type of its elements is "
            "unknown; use an array, or an example that is not empty."
        )
    features = [
        tfds.features.FeaturesDict({"": extract(child, field_name=path)})[""] for child in data
    ]
    for index, feature in enumerate(features):
        if repr(feature) != repr(features[0]):
            raise ValueError(
                f"{_label(path)} is a list whose elements differ: element 0 is {features[0]}, "
                f"element {index} is {feature}; use a dict."
            )
    return features[0]


def _read_shape_and_dtype(data: Any, path: str) -> tuple[tuple[int | None, ...], tf.DType]:
    if data is None:
        raise ValueError(
            f"{_label(path)} is None, which TFDS does not support; omit the field, or give it a "
            "value of its type."
        )
    if isinstance(data, bool | int | float | complex | str | bytes):
        data = np.asarray(data)
    if not hasattr(data, "shape") or not hasattr(data, "dtype"):
        raise ValueError(
            f"{_label(path)} is a {type(data).__name__}; expected a number, a string, an array, "
            f"a spec, or a nest of these: {data!r:.200}"
        )
    shape = tf.TensorShape(data.shape)
    if shape.rank is None:
        raise ValueError(f"{_label(path)} has an unknown number of axes; TFDS needs the number.")
    try:
        dtype = tf.as_dtype(data.dtype)
    except TypeError:
        dtype = None
    is_text = dtype == tf.string
    if is_text and isinstance(data, np.ndarray):
        is_text = all(isinstance(item, str | bytes) for item in data.flat)
    if dtype is None or (not is_text and dtype.name not in _NUMBER_DTYPES + _RAW_BYTES_DTYPES):
        raise ValueError(f"{_label(path)}: TFDS cannot hold {data.dtype}: {data!r:.200}")
    return tuple(shape.as_list()), dtype


def _choose_image_encoding(
    shape: tuple[int | None, ...], dtype: tf.DType, path: str, image_encoding: str | None
) -> str | None:
    """Returns the encoding of an image; None for any other field."""
    name = path.rpartition("/")[2]
    if shape == ():
        is_image = dtype == tf.string and _is_image_name(name)
        is_jpeg = True
    else:
        is_named = _is_image_name(path) or path == rlds_types.OBSERVATION
        channels = {tf.uint8: (1, 3, 4), tf.uint16: (1, 3, 4), tf.float32: (1,)}.get(dtype, ())
        is_image = is_named and len(shape) == 3 and 0 not in shape and shape[2] in channels
        is_jpeg = dtype == tf.uint8 and shape[2:] != (4,)
    if not is_image:
        return None
    if image_encoding not in _IMAGE_ENCODINGS:
        raise ValueError(
            f"{_label(path)} is an image, but image_encoding is {image_encoding!r}; expected "
            f"one of {list(_IMAGE_ENCODINGS)}, or use_images=False."
        )
    return image_encoding if is_jpeg else "png"


def _is_image_name(name: str) -> bool:
    return any(word in name.lower() for word in _IMAGE_NAMES)


def _choose_tensor_encoding(
    shape: tuple[int | None, ...], dtype: tf.DType, path: str, encoding: tfds.features.Encoding
) -> tfds.features.Encoding:
    encoding = tfds.features.Encoding(encoding)
    # Properties that a reader cannot restore from plain numbers.
    needs_raw = dtype.name in _RAW_BYTES_DTYPES or 0 in shape or shape.count(None) > 1
    if dtype in (tf.string, tf.uint32):
        if needs_raw:
            raise ValueError(
                f"{_label(path)}: TFDS cannot hold arrays of {dtype.name} of shape {shape}."
            )
        return tfds.features.Encoding.NONE
    if needs_raw and encoding == tfds.features.Encoding.NONE:
        return tfds.features.Encoding.BYTES
    return encoding


def _label(path: str) -> str:
    return f"the field {path!r}" if path else "the data"
