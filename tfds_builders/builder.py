"""TFDS builders for sources: a class to derive from, and a function for scripts."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import os
from collections.abc import Callable
from typing import Any, ClassVar

import tensorflow_datasets as tfds
from etils import epath
from tensorflow_datasets.core import dataset_builder

from rlds.conversion.exporting import prepare, write_export
from rlds.conversion.staging import remove_finished
from rlds.formats.tfds.export import (
    CONVERSION,
    TfdsExport,
    check_name,
    digest_of_inputs,
    field_metadata,
)
from rlds.formats.tfds.features import TensorStorage
from rlds.raw_files import archives
from rlds.sources import lineage, reading
from rlds.sources.encoded_frames import with_video
from rlds.sources.episodes import Episodes
from rlds.sources.options import Option, options_of
from rlds.sources.restored_source import with_sidecar
from rlds.sources.source import AnySource, SourceError
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.stores import is_local
from rlds_ecosystem.model.errors import StorageError, storage_errors
from tfds_builders.features import features_of

__all__ = ["NamedBuilder", "SourceBuilder", "check_name", "convert", "prepared"]

_FLOAT64 = "float64"
# The options of a DownloadConfig that would change the content of a dataset, which are rejected.
_UNSUPPORTED_OPTIONS = {
    "max_examples_per_split": "pass a source with fewer episodes",
    "ignore_duplicates": "correct the source: the keys of its episodes must be unique",
}
_DESCRIPTION = "Episodes in the format of RLDS."


def convert(
    source: AnySource,
    *,
    name: str,
    version: str = "1.0.0",
    data_dir: str | os.PathLike[str] | None = None,
    description: str | None = None,
    file_format: str | None = None,
    shuffle: bool = True,
    skip_damaged: bool = False,
    verify: bool = True,
    progress: bool | None = None,
    jobs: int | None = None,
    float64: str | None = None,
    tensor_encoding: str | tfds.features.Encoding | None = None,
    png_level: int | None = None,
    download_config: tfds.download.DownloadConfig | None = None,
) -> tfds.core.DatasetBuilder:
    """Converts a source to an RLDS dataset, and returns a builder that reads it.

    If a conversion was interrupted, even by a kill, call it again with the same arguments. It
    continues where it stopped, and the result is the same to the last byte.

    Args:
      source: The source to convert.
      name: The name of the dataset: lower-case letters, digits and `_`, as `tfds.load` needs it.
      version: The version of the dataset, as `major.minor.patch`.
      data_dir: The directory of TFDS datasets; the default directory of TFDS if None.
      description: The description of the dataset; None for the description of the source.
      file_format: `tfrecord`, or `array_record` for random access (`as_data_source`).
      shuffle: Whether to store episodes in a random order (sorted by the hashes of their keys), as
        TFDS does, or in the order of the source.
      skip_damaged: Whether to leave out episodes that cannot be read, with a warning; they are
        listed in `info.metadata["conversion"]`. Otherwise the first of them raises an error.
      verify: Whether to read the dataset back, and compare it with what was written.
      progress: Whether to show a progress bar; if None, on a terminal.
      jobs: The number of processes that read a large source; if None, as many as
        processors and memory allow. The result is the same, to the last byte.
      float64: The storage of the float64 of steps: "bytes", which is the default, keeps every bit;
        "float32" rounds it to plain numbers, as the loaders of dlimp, Octo and OpenVLA need it.
      tensor_encoding: The storage of the arrays of steps, instead of the features of the source:
        "none" for plain numbers, which these loaders also need, or "zlib".
      png_level: The compression level of PNG files, 0 to 9 as for `zlib.compress`. If None, 1,
        which is fast, or 6 for images that become small. All levels keep the pixels.
      download_config: The number or size of shards. With `beam_runner` or `beam_options`, Apache
        Beam does the work.

    Returns:
      The builder that `tfds.builder_from_directory` makes. Its `data_path` is the new directory.

    Raises:
      FileExistsError: The dataset exists in this version; it stays unchanged.
      SourceError: The raw data is damaged; says where. No dataset is left.
      StorageError: The dataset cannot be written, or another process is writing it.
      ValueError: An argument is wrong.
    """
    builder = NamedBuilder(
        name=name,
        source=source,
        version=version,
        data_dir=data_dir,
        description=description,
        file_format=file_format,
        shuffle=shuffle,
        skip_damaged=skip_damaged,
        verify=verify,
        progress=progress,
        jobs=jobs,
        float64=float64,
        tensor_encoding=tensor_encoding,
        png_level=png_level,
    )
    return prepared(builder, download_config)


def prepared(
    builder: SourceBuilder, download_config: tfds.download.DownloadConfig | None
) -> tfds.core.DatasetBuilder:
    """Creates a new dataset, and returns a builder that reads it.

    Raises:
      FileExistsError: The dataset exists. (If a process died in this call after creating the
        dataset, the next call completes.)
    """
    builder.make(download_config)
    return tfds.builder_from_directory(builder.data_path)


class SourceBuilder(dataset_builder.FileReaderBuilder, skip_registration=True):  # type: ignore[misc,call-arg]
    """A TFDS builder for raw data in one format.

    Derived classes name the source in `source_class`, or override `make_source`. They are
    registered with TFDS under their names. An example of the dataset is an episode:

    * `steps`;
    * `episode_id`, the key of the episode in the source;
    * `final_observation_known`, `truncated` and `complete`, see
      `rlds.sources.source.SourceEpisode`;
    * `source`, the location of its raw data;
    * the fields of the episode that the source declares.

    `info.metadata` has the metadata of the source, and under "conversion" the counts of
    the conversion, for each of the "splits".

    Without a `path`, a builder looks for `raw_name` in the `manual_dir` of TFDS. If it is
    missing, it downloads the raw data from the URL, if there is one.

    As with any TFDS builder, `download_and_prepare` does nothing if the dataset exists. While it
    works, finished files are kept next to the dataset (in `.<version>.parts`), so that a later call
    can continue.

    Args:
      path: The path of the raw data.
      shuffle: See `convert`; None for `SHUFFLE` of the class.
      skip_damaged: See `convert`.
      verify: See `convert`.
      progress: See `convert`.
      jobs: See `convert`.
      float64: See `convert`.
      tensor_encoding: See `convert`.
      png_level: See `convert`.
      data_dir: See `convert`.
      file_format: See `convert`.
      config: The name of a config of the class, or a config.
      version: The version of the dataset.
      name: The name of the dataset; if None, the name of the class.
      **options: Arguments of `source_class`, by name.

    Attributes:
      source_class: Creates a source from a path. Its other arguments are options of the builder.
        A config may have fields of the same names.
      SHUFFLE: The default for `shuffle`.
      EXTRACT: Whether raw data that is an archive is extracted, to the `extract_dir` of TFDS.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class: ClassVar[Callable[..., AnySource]]
    SHUFFLE: ClassVar[bool] = True
    EXTRACT: ClassVar[bool] = False
    # Files are downloaded without checksums if none are published.
    url_infos = None
    _fixed_source: AnySource | None = None
    _fixed_description: str | None = None

    def __init__(
        self,
        *,
        path: str | os.PathLike[str] | None = None,
        shuffle: bool | None = None,
        skip_damaged: bool = False,
        verify: bool = True,
        progress: bool | None = None,
        jobs: int | None = None,
        float64: str | None = None,
        tensor_encoding: str | tfds.features.Encoding | None = None,
        png_level: int | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        file_format: str | None = None,
        config: Any = None,
        version: str | None = None,
        name: str | None = None,
        **options: Any,
    ) -> None:
        if unknown := options.keys() - self.options():
            raise TypeError(f"{type(self).__name__}: unknown argument {min(unknown)!r}")
        if name is not None:
            check_name(name)
            self.name = name
        self._options = options
        self._storage = TensorStorage(float64, tensor_encoding, png_level=png_level)
        self._raw_path = None if path is None else stores.as_path(path).expanduser()
        self._shuffle = self.SHUFFLE if shuffle is None else shuffle
        self._skip_damaged, self._verify = skip_damaged, verify
        self._progress, self._jobs = progress, jobs
        self._source = self._fixed_source
        self._cached_info: tfds.core.DatasetInfo | None = None
        if data_dir is not None:
            data_dir = os.path.expanduser(data_dir)
            with storage_errors(data_dir):
                stores.require_bucket(data_dir)
        super().__init__(data_dir=data_dir, config=config, version=version, file_format=file_format)
        self._target = stores.as_path(os.fspath(self.data_path))
        self._original_state |= {
            "path": path,
            "shuffle": shuffle,
            "skip_damaged": skip_damaged,
            "verify": verify,
            "progress": progress,
            "jobs": jobs,
            "float64": self._storage.float64,
            "tensor_encoding": self._storage.tensor_encoding,
            "png_level": png_level,
            "file_format": file_format,
            "name": name,
            **options,
        }

    @classmethod
    def options(cls) -> dict[str, Option]:
        """Returns the options of `source_class` that the builder lacks, by name."""
        if not hasattr(cls, "source_class"):
            return {}
        return options_of(cls.source_class, leave_out=inspect.signature(SourceBuilder).parameters)

    def make_source(self, path: epath.Path) -> AnySource:
        """Returns the source for raw data.

        Options of the builder override those of its config.

        Args:
          path: The file or the directory of the raw data.

        Raises:
          SourceError: The data does not have the format of the builder.
        """
        config = vars(self.builder_config) if self.builder_config else {}
        config_options = {name: config[name] for name in self.options() if name in config}
        return with_video(
            with_sidecar(
                reading.open_source(self.source_class, path, **{**config_options, **self._options})
            )
        )

    def raw_name(self) -> str:
        """Returns the name of the raw data in the `manual_dir` of TFDS; "" for the root."""
        return (self.url() or "").rsplit("/", 1)[-1]

    def url(self) -> str | None:
        """Returns the URL to download raw data from, or to read (`gs://`); None without a URL."""
        return None

    @property
    def info(self) -> tfds.core.DatasetInfo:
        """The `DatasetInfo`; its features are None until the raw data has a path."""
        if self._cached_info is None:
            self._cached_info = self._info()
        return self._cached_info

    def _info(self) -> tfds.core.DatasetInfo:
        path = self._raw_path
        if self._source is None and path is not None and not self._is_archive(path):
            self._source = self.make_source(path)
        return tfds.core.DatasetInfo(
            builder=self, features=self._features(), **self._info_fields(self._source)
        )

    def _features(self) -> Any:
        if self._source is not None:
            return features_of(self._source, self._storage)
        if tfds.core.dataset_info.dataset_info_path(self.data_path).exists():
            return tfds.features.FeaturesDict.from_config(self.data_path)
        return None

    def _info_fields(self, source: AnySource | None) -> dict[str, Any]:
        if source is None:
            return {"description": self.__class__.__doc__ or _DESCRIPTION}
        text, info = self._fixed_description, source.source_info
        metadata = {**info.metadata, **field_metadata(source)}
        for name in (CONVERSION, lineage.KEY):  # Files keep their counts and lineage.
            metadata.pop(name, None)
        return {
            "description": info.description or _DESCRIPTION if text is None else text,
            **{name: getattr(info, name) or None for name in ("homepage", "citation", "license")},
            "metadata": tfds.core.MetadataDict(metadata),
        }

    def download_and_prepare(
        self,
        *,
        download_dir: str | os.PathLike[str] | None = None,
        download_config: tfds.download.DownloadConfig | None = None,
        file_format: Any = None,
        **kwargs: Any,
    ) -> None:
        """Converts the raw data, unless the dataset exists; see `tfds.core.DatasetBuilder`.

        Raises:
          FileNotFoundError: There is no raw data.
          SourceError: The raw data is damaged; says where. No dataset is left.
          StorageError: The dataset cannot be written, or another process is writing it.
        """
        config = _check_config(download_config)
        self._check_same_arguments(config)
        if self.is_made() and not config.download_mode.overwrite_dataset:
            remove_finished(self._target)
            if is_local(self._target):  # The description may need an update.
                super().download_and_prepare(download_config=config)
            return
        if file_format:
            self.info.set_file_format(file_format, override=True)
        self.make(config, download_dir=download_dir)

    def make(
        self,
        download_config: tfds.download.DownloadConfig | None = None,
        *,
        download_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """Converts the raw data; an existing dataset is an error.

        Args:
          download_config: See `download_and_prepare`.
          download_dir: See `download_and_prepare`.

        Raises:
          FileExistsError: The dataset exists; it stays unchanged.
          SourceError: See `download_and_prepare`, also for the other errors.
        """
        config = _check_config(download_config)
        self.assert_is_not_blocked()
        try:
            if self._source is None:
                manager = self._make_download_manager(
                    download_dir=download_dir, download_config=config
                )
                self._source = self.make_source(self._find_raw_data(manager, config))
                file_format, self._cached_info = self.info.file_format, None
                self.info.set_file_format(file_format)
            self._convert(self._source, config)
        finally:
            if download_dir is None:
                self._remove_empty_downloads()
        self._cached_info = tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict.from_config(self.data_path)
        )
        self.info.read_from_directory(self.data_path)

    def _convert(self, source: AnySource, config: tfds.download.DownloadConfig) -> None:
        for split in source.splits:  # All splits are checked before hours of reading.
            if reading.count(source, split) == 0:
                raise SourceError("no episodes to convert", file=f"split {split!r}")
        writer = prepare(
            Episodes(source, "+".join(source.splits)),
            "tfds",
            name=self.name,
            version=str(self.version),
            file_format=self.info.file_format.file_suffix,
            shuffle=self._shuffle,
            num_shards=config.num_shards,
            float64=self._storage.float64,
            tensor_encoding=self._storage.tensor_encoding,
            png_level=self._storage.png_level,
        )
        assert isinstance(writer, TfdsExport)
        writer.info = json.loads(self.info.as_json)
        shards = config.get_shard_config()
        writer.shard_sizes = (shards.min_shard_size, shards.max_shard_size)
        is_on_beam = config.beam_runner is not None or config.beam_options is not None
        if config.download_mode.overwrite_dataset and self._target.exists():
            self._target.rmtree()
        with storage_errors(self._target.parent):
            self._target.parent.mkdir(parents=True, exist_ok=True)
        if self.BUILDER_CONFIGS:
            dataset_builder._save_default_config_name(
                self._target.parent.parent,
                default_config_name=self.get_default_builder_config().name,
            )
        write_export(
            writer,
            self._target,
            skip_damaged=self._skip_damaged,
            verify=self._verify,
            progress=self._progress,
            jobs=self._jobs,
            pipeline=(config.beam_runner, config.beam_options) if is_on_beam else None,
        )

    def _remove_empty_downloads(self) -> None:
        """Removes the folders for downloads that TFDS creates, if they are empty."""
        downloads = os.path.join(os.path.expanduser(self._data_dir_root), "downloads")
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(downloads, "extracted"))
            os.rmdir(downloads)

    def is_made(self) -> bool:
        """Whether the dataset exists.

        Raises:
          StorageError: The dataset is incomplete.
        """
        if is_local(self._target):
            return bool(self._target.exists())
        with storage_errors(self._target):
            if not tfds.core.dataset_info.dataset_info_path(self._target).exists():
                return False
        splits = (self.info.splits or {}).values()
        names = [os.path.basename(name) for split in splits for name in split.filenames]
        with storage_errors(self._target):
            present = {entry.name for entry in stores.list_directory(self._target)}
        missing = [name for name in names if name not in present]
        if missing:
            raise StorageError(
                f"{self._target}: the file {missing[0]!r} of the dataset is missing; remove the "
                "folder, and convert again"
            )
        return True

    def _check_same_arguments(self, download_config: tfds.download.DownloadConfig) -> None:
        """Raises an error where a TFDS builder would silently use an older dataset."""
        if not self.is_made() or download_config.download_mode.overwrite_dataset:
            return
        conversion = (self.info.metadata or {}).get(CONVERSION, {})
        old_float64 = conversion.get(_FLOAT64, "bytes")
        if self._storage.float64 not in (None, old_float64):
            raise FileExistsError(
                f"{self.data_path} has a dataset that was converted with float64={old_float64!r}, "
                "and is not overwritten; pass another data_dir, or delete it first."
            )
        if self._source is None:
            return
        inputs = digest_of_inputs(self._source)
        if conversion.get("inputs", inputs) != inputs:
            raise FileExistsError(
                f"{self.data_path} has a dataset of other raw data, and is not overwritten; pass "
                "another data_dir, or delete it first."
            )

    def _download_and_prepare(self, dl_manager: Any, download_config: Any) -> None:
        raise NotImplementedError("call `make`")

    def _is_archive(self, path: epath.Path) -> bool:
        return self.EXTRACT and path.name.endswith(archives.SUFFIXES)

    def _find_raw_data(
        self, dl_manager: Any, download_config: tfds.download.DownloadConfig
    ) -> epath.Path:
        """Returns the path of the raw data, downloaded and extracted if needed."""
        path, url = self._raw_path, self.url()
        if path is None:
            manual_dir = download_config.manual_dir or dl_manager.download_dir / "manual"
            path = epath.Path(manual_dir).expanduser() / self.raw_name()
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            return self._extract(path, dl_manager, download_config)
        if url is None or self._raw_path is not None:
            raise FileNotFoundError(
                f"{self.name}: the raw data is missing: {path} does not exist. Pass the path "
                "(`path=...`, with tfds.load: `builder_kwargs={'path': ...}`), or a `manual_dir` "
                "in the DownloadConfig."
            )
        if not url.startswith(("http://", "https://")):
            return stores.as_path(url)
        downloaded = epath.Path(dl_manager.download(url))
        return self._extract(downloaded, dl_manager, download_config)

    def _extract(
        self, path: epath.Path, dl_manager: Any, download_config: tfds.download.DownloadConfig
    ) -> epath.Path:
        if not self._is_archive(path):
            return path
        directory = download_config.extract_dir or dl_manager.download_dir / "extracted"
        return archives.extract(path, epath.Path(directory).expanduser())


class NamedBuilder(SourceBuilder, skip_registration=True):  # type: ignore[call-arg]
    """A builder for a source object, with the name of a dataset."""

    RELEASE_NOTES: ClassVar[dict[str, str]] = {}

    def __init__(
        self, *, name: str, source: AnySource, version: str, description: str | None, **kwargs: Any
    ) -> None:
        self.VERSION = tfds.core.Version(version)
        if kwargs.get("config") is not None:
            self.BUILDER_CONFIGS = [kwargs["config"]]
        self._fixed_source, self._fixed_description = source, description
        super().__init__(name=name, version=version, **kwargs)


def _check_config(config: tfds.download.DownloadConfig | None) -> tfds.download.DownloadConfig:
    """Returns a config without options that would change the content of a dataset."""
    config = config or tfds.download.DownloadConfig()
    for option, remedy in _UNSUPPORTED_OPTIONS.items():
        if getattr(config, option) not in (None, False):
            raise ValueError(f"DownloadConfig: {option} is not supported; {remedy}")
    if (num_shards := config.num_shards) is not None and num_shards < 1:
        raise ValueError(f"num_shards must be at least 1, got {num_shards}; None lets TFDS choose")
    # TFDS has prepared only other datasets.
    return dataclasses.replace(config, try_download_gcs=False)
