"""The features of a dataset: reads and writes its `features.json`.

The file holds the JSON of a proto, `tensorflow_datasets.Feature`: a tree whose inner nodes are
dicts of features and sequences, and whose leaves are tensors. Composite features of TFDS are read
as their components: a `Video` as a sequence of images, a `Translation` as a dict of strings. Files
of older versions of TFDS, with arguments of classes, are supported as well.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from tfds_files.errors import DamagedFileError, UnsupportedFileError
from tfds_files.summary import FEATURES_FILE

__all__ = [
    "Dataset",
    "Feature",
    "Features",
    "Image",
    "Leaf",
    "Sequence",
    "Tensor",
    "check_features",
    "images_as_bytes",
    "leaves_of",
    "parse_features",
    "read_features",
]

_TFDS_MODULE = "tensorflow_datasets.core.features."
_ENCODINGS = ("none", "bytes", "zlib")
# The maximum depth of nesting; a deeper file counts as damaged.
_MAX_DEPTH = 50

Shape = tuple[int | None, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Feature:
    """A node of the feature tree.

    Attributes:
      class_name: The class of TFDS that the file names, such as
        `tensorflow_datasets.core.features.text_feature.Text`.
      doc: The description by the author of the dataset.
      value_range: A description of the range of the values.
      details: The remaining entries of the node in the file, which are written back unchanged.
    """

    class_name: str = ""
    doc: str = ""
    value_range: str = ""
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON of `features.json`, which TFDS and `parse_features` read.

        TFDS writes the file with `json.dumps(..., indent=4, sort_keys=True)`. If `class_name` is
        empty, the usual class of the feature is written.

        Raises:
          ValueError: TFDS has no such feature.

        >>> Tensor(dtype=np.dtype(np.int64), shape=(3, None)).to_json()["tensor"]["shape"]
        {'dimensions': ['3', '-1']}
        """
        kind, class_name = _kind_of(self)
        tree = {"pythonClassName": self.class_name or _TFDS_MODULE + class_name}
        if self.doc:
            tree["description"] = self.doc
        if self.value_range:
            tree["valueRange"] = self.value_range
        content = {**self.details, **_KINDS[kind].write(self)}
        return {**tree, kind: {name: value for name, value in content.items() if value is not None}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tensor(Feature):
    """Numbers or strings.

    Attributes:
      shape: The shape of a value; None for sizes that differ between examples.
      dtype: The dtype of a value; `object` for strings.
      encoding: The storage: "none" for plain numbers, "bytes" or "zlib" for the memory of arrays.
      optional: Whether the field may be missing in examples.
      minimum: The least value; None if unknown.
      maximum: The greatest value; None if unknown.
      num_classes: The number of classes, if the values are class labels.
      sample_rate: The number of values per second of audio; None if unknown.
    """

    shape: Shape = ()
    dtype: np.dtype
    encoding: str = "none"
    optional: bool = False
    minimum: float | None = None
    maximum: float | None = None
    num_classes: int | None = None
    sample_rate: float | None = None

    @property
    def is_text(self) -> bool:
        """Whether the tensor holds strings."""
        return self.dtype.kind == "O"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Image(Feature):
    """An image, stored as a file.

    Attributes:
      shape: Height, width and channels; None for sizes that differ between images.
      dtype: uint8, uint16, or float32 for depths, whose bytes are stored as four channels.
      encoding_format: "png", "jpeg", or empty if the files may be of any kind.
      num_classes: The number of classes, if the pixels are class labels.
    """

    shape: Shape
    dtype: np.dtype
    encoding_format: str = ""
    num_classes: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sequence(Feature):
    """A sequence of values of another feature.

    Attributes:
      feature: The feature of an element.
      length: The number of elements; None if it differs between examples.
    """

    feature: Feature
    length: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dataset(Sequence):
    """A sequence that TFDS returns as a `tf.data.Dataset`, such as the steps of an episode."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Features(Feature, Mapping[str, Feature]):
    """A dict of features, in alphabetical order, as in the file.

    Attributes:
      features: The features by their names.
    """

    features: Mapping[str, Feature]

    def __getitem__(self, name: str) -> Feature:
        return self.features[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.features)

    def __len__(self) -> int:
        return len(self.features)


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A leaf of the feature tree: a tensor or an image, with its path and sequences.

    Attributes:
      path: The names of the features around the leaf, and its own name.
      feature: The feature itself.
      lengths: The lengths of the sequences around the leaf, outermost first; None if variable.
    """

    path: tuple[str, ...]
    feature: Tensor | Image
    lengths: tuple[int | None, ...]

    @property
    def name(self) -> str:
        """The name of the leaf in examples."""
        return "/".join(self.path)


def read_features(directory: epath.PathLike) -> Features:
    """Reads the features of a dataset.

    Args:
      directory: The directory of the dataset: a folder, or a URL.

    Raises:
      DamagedFileError: `features.json` was not written by TFDS.
      UnsupportedFileError: A feature is not supported.
      FileNotFoundError: There is no such file.
    """
    path = epath.Path(directory) / FEATURES_FILE
    try:
        return parse_features(json.loads(path.read_text()))
    except (ValueError, RecursionError) as e:
        kind = UnsupportedFileError if isinstance(e, UnsupportedFileError) else DamagedFileError
        raise kind(f"{path}: {e}") from e


def parse_features(tree: Any) -> Features:
    """Returns the features that the JSON of `features.json` describes.

    Args:
      tree: The parsed JSON.

    Raises:
      DamagedFileError: The JSON was not written by TFDS.
      UnsupportedFileError: A feature is not supported.

    >>> scalar = {"pythonClassName": "...", "tensor": {"shape": {}, "dtype": "int64"}}
    >>> parse_features({"featuresDict": {"features": {"id": scalar}}})["id"].dtype
    dtype('int64')
    """
    features = _parse_feature(tree, "", 0)
    if not isinstance(features, Features):
        raise UnsupportedFileError("the examples are not dicts")
    return features


def images_as_bytes(features: Features) -> Features:
    """Returns features in which each image is replaced by the bytes of its file."""

    def replace(feature: Feature) -> Feature:
        if isinstance(feature, Image):
            return Tensor(dtype=np.dtype(object), doc=feature.doc)
        if isinstance(feature, Features):
            return dataclasses.replace(feature, features=replace_all(feature.features))
        if isinstance(feature, Dataset):
            return dataclasses.replace(feature, feature=replace(feature.feature))
        return feature

    def replace_all(children: Mapping[str, Feature]) -> dict[str, Feature]:
        return {name: replace(child) for name, child in children.items()}

    return dataclasses.replace(features, features=replace_all(features.features))


def leaves_of(feature: Feature) -> Iterator[Leaf]:
    """Yields the tensors and images of a tree, in the order of the tree."""
    yield from _find_leaves(feature, (), ())


def check_features(features: Features) -> None:
    """Checks that TFDS can read stored fields back without loss.

    Raises:
      ValueError: TFDS cannot read a field back; the error names the field.
    """
    for leaf in leaves_of(features):
        _check_readable(leaf)


def _check_readable(leaf: Leaf) -> None:
    feature, kind = leaf.feature, ""
    if len(leaf.lengths) > 1 and None not in leaf.lengths[1:]:
        kind = "sequences of a fixed length in a sequence; leave the length out"
    elif isinstance(feature, Image):
        return
    elif feature.encoding != "none":
        if feature.dtype == "uint32":
            kind = f"uint32 with the encoding {feature.encoding!r}; use 'none'"
    elif None in feature.shape and (leaf.lengths or feature.shape.count(None) > 1):
        kind = "plain arrays of unknown sizes; use the encoding 'zlib' or 'bytes'"
    elif 0 in feature.shape or feature.dtype.kind not in "biufO":
        kind = f"plain {feature.dtype} of shape {feature.shape}; use the encoding 'zlib' or 'bytes'"
    elif feature.dtype == "float64":
        kind = "plain float64; use float32, or the encoding 'zlib' or 'bytes'"
    if kind:
        raise ValueError(f"{leaf.name}: TFDS cannot hold {kind}")


def _find_leaves(
    feature: Feature, path: tuple[str, ...], lengths: tuple[int | None, ...]
) -> Iterator[Leaf]:
    if isinstance(feature, Features):
        for name, child in feature.items():
            yield from _find_leaves(child, (*path, name), lengths)
    elif isinstance(feature, Sequence):
        yield from _find_leaves(feature.feature, path, (*lengths, feature.length))
    elif isinstance(feature, Tensor | Image):
        yield Leaf(path, feature, lengths)


def _parse_feature(tree: Any, path: str, depth: int) -> Feature:
    if depth > _MAX_DEPTH:
        raise DamagedFileError(f"{path}: more than {_MAX_DEPTH} features are nested")
    tree = _check_dict(tree, path)
    has_arguments = "type" in tree and "proto_cls" not in tree
    if "type" in tree:
        tree = _convert_arguments(tree, path)
    class_name, doc = str(tree.get("pythonClassName", "")), _parse_doc(tree.get("description", ""))
    kinds = [kind for kind in _KINDS if kind in tree]
    if len(kinds) != 1:
        raise UnsupportedFileError(
            f"{path or 'the top'}: unsupported feature {class_name or 'of no class'}, with "
            f"{sorted(tree)}; tensorflow_datasets may read it"
        )
    content, kind = _check_dict(tree[kinds[0]], path), _KINDS[kinds[0]]
    parsed = kind.parse(content, path, depth, class_name)
    names = content.keys() if has_arguments else kind.names  # Arguments have other names.
    return dataclasses.replace(
        parsed,
        class_name=class_name,
        doc=doc,
        value_range=str(tree.get("valueRange", "")),
        details={name: value for name, value in content.items() if name not in names},
    )


def _parse_doc(description: Any) -> str:
    return str(description.get("text", "") if isinstance(description, Mapping) else description)


def _parse_features_dict(content: Mapping[str, Any], path: str, depth: int, _: str) -> Feature:
    children = _check_dict(content.get("features", {}), path)
    return Features(
        features={
            name: _parse_feature(child, f"{path}/{name}" if path else name, depth + 1)
            for name, child in sorted(children.items())
        }
    )


def _parse_sequence(content: Mapping[str, Any], path: str, depth: int, class_name: str) -> Feature:
    kind = Dataset if class_name.endswith(".Dataset") else Sequence
    element = _parse_feature(content.get("feature"), path, depth + 1)
    return kind(feature=element, length=_parse_size(content.get("length", 0), path))


def _parse_dataset(content: Mapping[str, Any], path: str, depth: int, _: str) -> Feature:
    return _parse_sequence(content, path, depth, ".Dataset")


def _parse_tensor(content: Mapping[str, Any], path: str, _: int, __: str) -> Feature:
    encoding = str(content.get("encoding") or "none").lower()
    if encoding not in _ENCODINGS:
        raise UnsupportedFileError(f"{path}: unsupported encoding {encoding!r}")
    return Tensor(
        shape=_parse_shape(content, path),
        dtype=_parse_dtype(content.get("dtype", ""), path),
        encoding=encoding,
        optional=bool(content.get("optional", False)),
        minimum=_parse_number(content.get("minimum"), path),
        maximum=_parse_number(content.get("maximum"), path),
    )


def _parse_text(_: Mapping[str, Any], __: str, ___: int, ____: str) -> Feature:
    return Tensor(dtype=np.dtype(object))


def _parse_class_label(content: Mapping[str, Any], path: str, _: int, __: str) -> Feature:
    num_classes = _parse_size(content.get("numClasses", -1), path)
    return Tensor(dtype=np.dtype(np.int64), num_classes=num_classes)


def _parse_bounding_box(_: Mapping[str, Any], __: str, ___: int, ____: str) -> Feature:
    return Tensor(shape=(4,), dtype=np.dtype(np.float32))


def _parse_audio(content: Mapping[str, Any], path: str, depth: int, class_name: str) -> Feature:
    if content.get("lazyDecode"):
        raise UnsupportedFileError(
            f"{path}: sound stored as files; tensorflow_datasets reads them, with pydub"
        )
    content = {"dtype": "int64", **content}
    rate = _parse_number(content.get("sampleRate"), path)
    return dataclasses.replace(_parse_tensor(content, path, depth, class_name), sample_rate=rate)  # type: ignore[call-arg]


def _parse_image(content: Mapping[str, Any], path: str, _: int, __: str) -> Feature:
    label = _check_dict(content.get("label", {}), path)
    return Image(
        shape=_parse_shape(content, path) or (None, None, 3),
        dtype=_parse_dtype(content.get("dtype") or "uint8", path),
        encoding_format=str(content.get("encodingFormat") or ""),
        num_classes=_parse_size(label["numClasses"], path) if label else None,
    )


def _parse_video(content: Mapping[str, Any], path: str, depth: int, class_name: str) -> Feature:
    length, *shape = _parse_shape(content, path)
    frame = _parse_image(content, path, depth, class_name)
    return Sequence(feature=dataclasses.replace(frame, shape=tuple(shape)), length=length)  # type: ignore[call-arg]


def _parse_translation(content: Mapping[str, Any], _: str, __: int, ___: str) -> Feature:
    text = Tensor(dtype=np.dtype(object))
    if content.get("variableLanguagesPerExample"):
        return Sequence(feature=Features(features={"language": text, "translation": text}))
    return Features(features={str(name): text for name in content.get("languages", ())})


def _kind_of(feature: Any) -> tuple[str, str]:
    """Returns the proto kind of a feature, and the usual TFDS class of that kind."""
    class_kind = _kind_of_class(feature.class_name)
    if isinstance(feature, Features):
        kind = "translation" if class_kind == "translation" else "featuresDict"
        return kind, "features_dict.FeaturesDict"
    if isinstance(feature, Sequence):
        kind = class_kind if class_kind in ("video", "translation") else "sequence"
        is_dataset = isinstance(feature, Dataset)
        return kind, "dataset_feature.Dataset" if is_dataset else "sequence_feature.Sequence"
    if isinstance(feature, Image):
        is_labeled = feature.num_classes is not None
        return "image", "labeled_image.LabeledImage" if is_labeled else "image_feature.Image"
    if not isinstance(feature, Tensor):
        raise ValueError(f"TFDS has no feature for {feature!r:.100}")
    if class_kind in ("tensor", "text", "classLabel", "boundingBox", "audio"):
        return class_kind, ""
    if feature.num_classes is not None:
        return "classLabel", "class_label_feature.ClassLabel"
    if feature.sample_rate is not None:
        return "audio", "audio_feature.Audio"
    is_usual = feature == Tensor(dtype=feature.dtype, doc=feature.doc)
    if is_usual and feature.is_text:
        return "text", "text_feature.Text"
    return "tensor", "tensor_feature.Tensor"


def _write_tensor(feature: Tensor) -> dict[str, Any]:
    return {
        **_write_array(feature.shape, feature.dtype),
        "encoding": feature.encoding,
        "optional": feature.optional or None,
        "minimum": _write_number(feature.minimum),
        "maximum": _write_number(feature.maximum),
    }


def _write_audio(feature: Tensor) -> dict[str, Any]:
    return {
        **_write_array(feature.shape, feature.dtype),
        "encoding": feature.encoding.upper(),
        "sampleRate": _write_number(feature.sample_rate),
    }


def _write_image(feature: Image) -> dict[str, Any]:
    label = {"numClasses": str(feature.num_classes)}
    return {
        **_write_array(feature.shape, feature.dtype),
        "encodingFormat": feature.encoding_format or None,
        "label": None if feature.num_classes is None else label,
    }


def _write_video(feature: Sequence) -> dict[str, Any]:
    frame = feature.feature
    if not isinstance(frame, Image):
        raise ValueError(f"a video needs frames that are images, not {frame!r:.100}")
    shape = _write_array((feature.length, *frame.shape), frame.dtype)
    return {**shape, "encodingFormat": frame.encoding_format or None}


def _write_array(shape: Shape, dtype: np.dtype) -> dict[str, Any]:
    sizes = [_write_size(size) for size in shape]
    name = "string" if dtype.kind == "O" else dtype.name
    return {"shape": {"dimensions": sizes} if sizes else {}, "dtype": name}


def _write_size(size: int | None) -> str:
    return "-1" if size is None else str(size)


def _write_number(value: float | None) -> str | None:
    if value is not None and value != int(value):
        raise ValueError(f"TFDS can hold only whole numbers here, not {value!r}")
    return None if value is None else str(int(value))


def _write_features_dict(feature: Features) -> dict[str, Any]:
    children = {name: child.to_json() for name, child in feature.items()}
    return {"features": children or None}


def _write_sequence(feature: Sequence) -> dict[str, Any]:
    # Protos omit a length of zero.
    length = None if feature.length == 0 else _write_size(feature.length)
    return {"feature": feature.feature.to_json(), "length": length}


def _write_translation(feature: Features | Sequence) -> dict[str, Any]:
    is_variable = isinstance(feature, Sequence) or None
    return {"variableLanguagesPerExample": is_variable}


def _write_bounding_box(feature: Tensor) -> dict[str, Any]:
    return _write_array(feature.shape, feature.dtype)


def _write_class_label(feature: Tensor) -> dict[str, Any]:
    return {"numClasses": None if feature.num_classes is None else str(feature.num_classes)}


class _Kind(NamedTuple):
    """A kind of feature of the proto.

    Attributes:
      parse: Returns a node from its content.
      write: Returns the content of a node.
      names: The entries of the content that are attributes of a node.
    """

    parse: Callable[[Mapping[str, Any], str, int, str], Feature]
    write: Callable[[Any], dict[str, Any]]
    names: tuple[str, ...] = ()


_TENSOR = ("shape", "dtype", "encoding")
_IMAGE = ("shape", "dtype", "encodingFormat")
# The keys are names of fields of the proto.
_KINDS = {
    "featuresDict": _Kind(_parse_features_dict, _write_features_dict, ("features",)),
    "sequence": _Kind(_parse_sequence, _write_sequence, ("feature", "length")),
    "dataset": _Kind(_parse_dataset, _write_sequence, ("feature", "length")),
    "tensor": _Kind(_parse_tensor, _write_tensor, (*_TENSOR, "optional", "minimum", "maximum")),
    "text": _Kind(_parse_text, lambda _: {}),
    "classLabel": _Kind(_parse_class_label, _write_class_label, ("numClasses",)),
    "boundingBox": _Kind(_parse_bounding_box, _write_bounding_box, ("shape", "dtype")),
    "audio": _Kind(_parse_audio, _write_audio, (*_TENSOR, "sampleRate")),
    "image": _Kind(_parse_image, _write_image, (*_IMAGE, "label")),
    "video": _Kind(_parse_video, _write_video, _IMAGE),
    "translation": _Kind(_parse_translation, _write_translation, ("variableLanguagesPerExample",)),
}


# Classes of TFDS whose names differ from their kind.
_KIND_OF_CLASS = {
    "Scalar": "tensor",
    "BBox": "boundingBox",
    "BBoxFeature": "boundingBox",
    "LabeledImage": "image",
    "TranslationVariableLanguages": "translation",
}


def _kind_of_class(class_name: str) -> str | None:
    """Returns the proto kind of a TFDS feature class; None if unknown."""
    name = class_name.rpartition(".")[2]
    kind = _KIND_OF_CLASS.get(name, f"{name[:1].lower()}{name[1:]}")
    return kind if kind in _KINDS else None


def _convert_arguments(tree: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns the proto of a feature from its class and arguments, the form of older TFDS."""
    class_name, content = str(tree["type"]), tree.get("content", {})
    kind = _kind_of_class(class_name)
    if kind is None:
        raise UnsupportedFileError(
            f"{path or 'the top'}: unsupported feature {class_name}; tensorflow_datasets may "
            "read it"
        )
    if isinstance(content, str):
        content = json.loads(content)
    if "proto_cls" not in tree:
        content = dict(_check_dict(content, path))
        if kind == "featuresDict":
            content = {"features": content}
        for name, argument in (
            ("encodingFormat", "encoding_format"),
            ("numClasses", "num_classes"),
            ("sampleRate", "sample_rate"),
            ("fileFormat", "file_format"),
            ("lazyDecode", "lazy_decode"),
        ):
            if content.get(argument) is not None:
                content[name] = content.pop(argument)
        if kind in ("sequence", "dataset") and content.get("length") is None:
            content["length"] = -1
        if class_name.endswith("VariableLanguages"):
            content["variableLanguagesPerExample"] = True
    return {"pythonClassName": class_name, kind: content}


def _check_dict(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise DamagedFileError(f"{path or 'the top'}: got {type(value).__name__}, expected a dict")
    return value


def _parse_shape(content: Mapping[str, Any], path: str) -> Shape:
    sizes = content.get("shape") or ()
    if isinstance(sizes, Mapping):
        sizes = sizes.get("dimensions", ())
    return tuple(_parse_size(size, path) for size in sizes)


def _parse_size(value: Any, path: str) -> int | None:
    """Returns a size; None if unknown, which is -1 in protos and null in arguments."""
    if value is None:
        return None
    try:
        size = int(value)
    except (TypeError, ValueError):
        raise DamagedFileError(f"{path}: got {value!r:.50}, expected a size") from None
    return None if size < 0 else size


def _parse_number(value: Any, path: str) -> float | None:
    if value is None:
        return None
    try:
        return int(value) if isinstance(value, str) and "." not in value else float(value)
    except (TypeError, ValueError):
        raise DamagedFileError(f"{path}: got {value!r:.50}, expected a number") from None


def _parse_dtype(name: Any, path: str) -> np.dtype:
    if name in ("string", "object"):
        return np.dtype(object)
    if name == "bfloat16":
        import ml_dtypes  # TensorFlow and JAX install this package.

        bfloat16: np.dtype = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    try:
        dtype: np.dtype = np.dtype(name)
    except TypeError:
        raise DamagedFileError(f"{path}: {name!r:.50} is not a dtype") from None
    if dtype.kind not in "biufc":
        raise DamagedFileError(f"{path}: unsupported dtype {name!r:.50}")
    return dtype
