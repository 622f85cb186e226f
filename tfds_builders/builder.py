"""TFDS builders for sources: a class to derive from, and a function for scripts."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import inspect
import json
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import tensorflow_datasets as tfds
from etils import epath
from tensorflow_datasets.core.dataset_builder import FileReaderBuilder

from rlds.formats.tfds.export import said_of_fields
from rlds.raw_files import archives
from rlds.raw_files.input_files import state_of
from rlds.raw_files.untrusted import SourceChangedError
from rlds.sources import lineage, reading
from rlds.sources.encoded_frames import with_video
from rlds.sources.options import Option, options_of
from rlds.sources.restored import with_sidecar
from rlds.sources.source import AnySource
from rlds.tfds.features import TensorStorage
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.processes import default_jobs
from rlds_ecosystem.files.stores import is_local
from rlds_ecosystem.model.errors import StorageError, storage_errors
from tfds_builders.conversion.publishing import missing_files, publish
from tfds_builders.conversion.staging import (
    remove_leftovers,
    remove_staged,
    staging_area,
    staging_directory,
)
from tfds_builders.features import features_of

if TYPE_CHECKING:
    from tfds_builders.conversion.job import ConversionJob, SplitReport, Work

__all__ = ["NamedBuilder", "SourceBuilder", "check_name", "convert", "prepared"]

CONVERSION = "conversion"
_FLOAT64 = "float64"
# Options of a DownloadConfig that would change what is in a dataset.
_UNSUPPORTED = {
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
      source: What is converted.
      name: The name of the dataset: lower-case letters, digits and `_`, as `tfds.load` needs it.
      version: Its version, as `major.minor.patch`.
      data_dir: The directory that TFDS keeps datasets in; its default directory if None.
      description: What the dataset is about; None for the description of the source.
      file_format: `tfrecord`, or `array_record` for random access (`as_data_source`).
      shuffle: Whether to store episodes in a random order (sorted by the hashes of their keys), as
        TFDS does, or in the order of the source.
      skip_damaged: Whether to leave out episodes that cannot be read, with a warning; they are
        listed in `info.metadata["conversion"]`. Otherwise the first of them is an error.
      verify: Whether to read the dataset back, and compare it with what was written.
      progress: Whether to show a progress bar; if None, on a terminal.
      jobs: How many processes read the source, if that takes long; if None, as many as there are
        processors and memory for. The result is the same, to the last byte.
      float64: How the float64 of steps is stored: "bytes", which is the default, keeps every bit;
        "float32" rounds it to plain numbers, as the loaders of dlimp, Octo and OpenVLA need it.
      tensor_encoding: How the arrays of steps are stored, whatever the features of the source say:
        "none" as plain numbers, which these loaders need too, or "zlib".
      png_level: The effort that goes into PNG files, 0 to 9 as for `zlib.compress`. If None, 1,
        which is fast, or 6 for images that become small. All levels keep the pixels.
      download_config: The number or size of shards. With `beam_runner` or `beam_options`, Apache
        Beam does the work; see `tfds_builders.conversion.beam`.

    Returns:
      The builder that `tfds.builder_from_directory` makes. Its `data_path` is the new directory.

    Raises:
      FileExistsError: The dataset exists in this version; it is left as it is.
      SourceError: The raw data is damaged; says where. No dataset is left at its place.
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
    """Makes a dataset that does not exist, and returns a builder that reads it.

    Raises:
      FileExistsError: It exists. (If a process died when it had just been made by the same call,
        this is the end of that call.)
    """
    if builder.is_made() and not builder.was_just_made(download_config):
        raise FileExistsError(
            f"{builder.data_path} exists and is not overwritten; pass another version, name or "
            "data_dir, or delete it first."
        )
    builder.download_and_prepare(download_config=download_config)
    return tfds.builder_from_directory(builder.data_path)


class SourceBuilder(FileReaderBuilder, skip_registration=True):  # type: ignore[misc,call-arg]
    """A TFDS builder for raw data in one format.

    Derived classes name the source in `source_class`, or make it in `make_source` if that takes
    more. They are registered with TFDS under their names. An example of the dataset is an episode:

    * `steps`;
    * `episode_id`, the key of the episode in the source;
    * `final_observation_known`, `truncated` and `complete`, see
      `rlds.sources.source.SourceEpisode`;
    * `source`, the place of its raw data;
    * the fields of the episode that the source declares.

    `info.metadata` has the metadata of the source, and under "conversion" the numbers of the
    conversion, for each of the "splits".

    Without a `path`, a builder looks for `raw_name` in the `manual_dir` of TFDS. If that is not
    there, it downloads the raw data, if there is a URL.

    As with any TFDS builder, `download_and_prepare` does nothing if the dataset exists. While it
    works, finished parts are kept in a directory next to the dataset (`.staging-<version>`), so
    that a later call can continue.

    Args:
      path: Where the raw data is.
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
      name: The name of the dataset; that of the class if None.
      **options: Arguments of `source_class`, by name.

    Attributes:
      source_class: Makes a source from a path. Its other arguments are the options of the builder.
        A config may have fields of the same names.
      SHUFFLE: The default for `shuffle`.
      EXTRACT: Whether raw data that is an archive is extracted, to the `extract_dir` of TFDS.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class: ClassVar[Callable[..., AnySource]]
    SHUFFLE: ClassVar[bool] = True
    EXTRACT: ClassVar[bool] = False
    # Files are downloaded without checksums where nobody published them.
    url_infos = None
    _given_source: AnySource | None = None
    _given_description: str | None = None

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
        self._given_path = None if path is None else stores.as_path(path).expanduser()
        self._shuffle = self.SHUFFLE if shuffle is None else shuffle
        self._skip_damaged, self._verify = skip_damaged, verify
        self._progress, self._jobs = progress, jobs
        self._reports: dict[str, SplitReport] = {}
        self._source = self._given_source
        self._known_info: tfds.core.DatasetInfo | None = None
        self._held = contextlib.ExitStack()
        self._area: epath.Path | None = None
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
        """Returns the options of `source_class` that the builder does not have anyway, by name."""
        if not hasattr(cls, "source_class"):
            return {}
        return options_of(cls.source_class, leave_out=inspect.signature(SourceBuilder).parameters)

    def make_source(self, path: epath.Path) -> AnySource:
        """Returns the source for raw data.

        Options of the builder override those of its config.

        Args:
          path: The file or the directory that the raw data is in.

        Raises:
          SourceError: It is not what the builder reads.
        """
        config = vars(self.builder_config) if self.builder_config else {}
        chosen = {name: config[name] for name in self.options() if name in config}
        return with_video(
            with_sidecar(reading.made(self.source_class, path, **{**chosen, **self._options}))
        )

    def raw_name(self) -> str:
        """Returns the name that the raw data has in the `manual_dir` of TFDS; "" if that is it."""
        return (self.url() or "").rsplit("/", 1)[-1]

    def url(self) -> str | None:
        """Returns where the raw data can be downloaded, or read (`gs://`); None if nowhere."""
        return None

    @property
    def info(self) -> tfds.core.DatasetInfo:
        """What is known of the dataset. Its features are those of the raw data, once that is."""
        if self._known_info is None:
            self._known_info = self._info()
        return self._known_info

    def _info(self) -> tfds.core.DatasetInfo:
        given = self._given_path
        if self._source is None and given is not None and not self._is_archive(given):
            self._source = self.make_source(given)
        return tfds.core.DatasetInfo(
            builder=self,
            features=self._features(),
            **self._described(self._source),
        )

    def _features(self) -> Any:
        if self._source is not None:
            return features_of(self._source, self._storage)
        if tfds.core.dataset_info.dataset_info_path(self.data_path).exists():
            return tfds.features.FeaturesDict.from_config(self.data_path)
        return None

    def _described(self, source: AnySource | None) -> dict[str, Any]:
        if source is None:
            return {"description": self.__class__.__doc__ or _DESCRIPTION}
        text = self._given_description
        metadata = {**source.about.metadata, **said_of_fields(source, as_texts=False)}
        if self._reports:
            original = metadata.get(CONVERSION)  # Of a dataset that is copied.
            metadata[CONVERSION] = {
                "inputs": _digest(source),
                **({_FLOAT64: "float32"} if self._storage.rounds else {}),
                "splits": {split: report.to_json() for split, report in self._reports.items()},
                **({} if original is None else {"original": original}),
            }
            metadata[lineage.KEY] = self._lineage(source)
        return {
            "description": source.about.description or _DESCRIPTION if text is None else text,
            "homepage": source.about.homepage or None,
            "citation": source.about.citation or None,
            "license": source.about.license or None,
            "metadata": tfds.core.MetadataDict(metadata),
        }

    def _lineage(self, source: AnySource) -> dict[str, Any]:
        """Where the episodes come from; each says by itself in which file it was."""
        options = {
            "name": self.name,
            "version": str(self.version),
            "file_format": self.info.file_format.value,
            "shuffle": self._shuffle,
            "float64": self._storage.float64,
            "tensor_encoding": self._storage.tensor_encoding,
        }
        said = lineage.converted(source, "tfds", options)
        return lineage.without_episodes(said)

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
          SourceError: The raw data is damaged; says where. No dataset is left at its place.
          StorageError: The dataset cannot be written, or another process is writing it.
        """
        download_config = download_config or tfds.download.DownloadConfig()
        # It is not among those that the authors of TFDS have prepared.
        download_config = dataclasses.replace(download_config, try_download_gcs=False)
        for option, what_to_do in _UNSUPPORTED.items():
            if getattr(download_config, option) not in (None, False):
                raise ValueError(f"DownloadConfig: {option} is not supported; {what_to_do}")
        if (num_shards := download_config.num_shards) is not None and num_shards < 1:
            raise ValueError(
                f"num_shards must be at least 1, got {num_shards}; None lets TFDS choose"
            )
        self._check_not_made_otherwise(download_config)
        if self.is_made():
            self.was_just_made(download_config)
            if not is_local(self._target) and not download_config.download_mode.overwrite_dataset:
                return  # As TFDS does, which is shown another directory below.
        with self._held:
            try:
                with storage_errors(self._target.parent):
                    self._target.parent.mkdir(parents=True, exist_ok=True)
                self._held.enter_context(self._made_on_disk())
                super().download_and_prepare(
                    download_dir=download_dir,
                    download_config=download_config,
                    file_format=file_format,
                    **kwargs,
                )
            except BaseException as error:
                if self._area is not None:
                    error.add_note(
                        f"{self._area} keeps the finished parts: the same call resumes "
                        "there. Remove it to start again."
                    )
                raise
            finally:
                self._area = None
                if download_dir is None:
                    self._remove_empty_downloads()

    def _remove_empty_downloads(self) -> None:
        """Removes the folders that TFDS makes beside the datasets, if nothing was downloaded."""
        downloads = os.path.join(os.path.expanduser(self._data_dir_root), "downloads")
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(downloads, "extracted"))
            os.rmdir(downloads)

    def _log_download_bytes(self) -> None:
        """Keeps TFDS from printing that it downloads something of unknown size."""

    def _log_download_done(self) -> None:
        """Likewise, when it is done."""

    def is_made(self) -> bool:
        """Whether there is a dataset at its place.

        Raises:
          StorageError: There is but a part of it.
        """
        if is_local(self._target):
            return bool(self._target.exists())
        with storage_errors(self._target):
            if not tfds.core.dataset_info.dataset_info_path(self._target).exists():
                return False
        splits = (self.info.splits or {}).values()
        names = [os.path.basename(name) for split in splits for name in split.filenames]
        missing = missing_files(self._target, names)
        if missing:
            raise StorageError(
                f"{self._target}: the file {missing[0]!r} of the dataset is missing; remove the "
                "folder, and convert again"
            )
        return True

    @contextlib.contextmanager
    def _made_on_disk(self) -> Iterator[None]:
        """Has a dataset that goes to a store made on this machine, complete, to be published.

        In a store, nothing can be renamed at once.
        """
        if is_local(self._target):
            yield
            return
        with tempfile.TemporaryDirectory(prefix=f"{_made_prefix(self._target)}-") as root:
            path = os.path.relpath(self._target, self.data_dir_root)
            with tfds.core.utils.temporary_assignment(self, "_data_dir", os.path.join(root, path)):
                yield
        self.info.update_data_dir(os.fspath(self._target))

    def was_just_made(self, download_config: tfds.download.DownloadConfig | None) -> bool:
        """Whether the same call made the dataset, and died before it had cleaned up.

        What it left is removed, so this is true but once.
        """
        download_config = download_config or tfds.download.DownloadConfig()
        directory = self._staging_directory(download_config)
        if not directory.exists():
            return False
        conversion: dict[str, Any] = {}
        if self._source is not None:
            from tfds_builders.conversion.job import describe

            conversion = describe(self._job(self._source, download_config))
        try:
            return remove_leftovers(directory, conversion)
        except StorageError:  # Another process is at it.
            return False

    def _check_not_made_otherwise(self, download_config: tfds.download.DownloadConfig) -> None:
        """A TFDS builder would silently go on with what is there."""
        if not self.is_made() or download_config.download_mode.overwrite_dataset:
            return
        conversion = (self.info.metadata or {}).get(CONVERSION, {})
        stored = conversion.get(_FLOAT64, "bytes")
        if self._storage.float64 not in (None, stored):
            raise FileExistsError(
                f"{self.data_path} has a dataset that was converted with float64={stored!r}, and "
                "is not overwritten; pass another data_dir, or delete it first."
            )
        if self._source is None:
            return
        if conversion.get("inputs", _digest(self._source)) != _digest(self._source):
            raise FileExistsError(
                f"{self.data_path} has a dataset of other raw data, and is not overwritten; pass "
                "another data_dir, or delete it first."
            )

    def _download_and_prepare(
        self, dl_manager: Any, download_config: tfds.download.DownloadConfig
    ) -> None:
        if self._source is None:
            self._source = self.make_source(self._find_raw_data(dl_manager, download_config))
            self._renew_info()
        # These load TensorFlow, which is not needed to know that there are builders.
        from tfds_builders.conversion.job import convert_job, describe
        from tfds_builders.conversion.labels import carry_labels
        from tfds_builders.conversion.verification import verify

        job = self._job(self._source, download_config)
        self._held.enter_context(staging_area(job.directory, describe(job)))
        overwrites = not is_local(self._target) and download_config.download_mode.overwrite_dataset
        if not overwrites and self.is_made():
            remove_staged(job.directory)
            raise FileExistsError(f"another process has just written {self._target}")
        self._area = job.directory
        self._remove_orphans()
        try:
            converted = convert_job(
                job, _work(download_config, self._jobs), self.data_path, self._progress
            )
        except SourceChangedError:  # What is staged is of raw data that was never there.
            remove_staged(job.directory)
            self._area = None
            raise
        self._reports = {name: split.report for name, split in converted.items()}
        self._renew_info()
        splits = [split.info for split in converted.values()]
        self.info.set_splits(tfds.core.splits.SplitDict(splits))
        with storage_errors(self.data_path):
            self.info.write_to_directory(self.data_path)
        if self._verify:
            verify(job.source, self.data_path, converted)
        if is_local(self._target):
            carry_labels(job.source, self.data_path, self._target)
        self._warn_of_left_out()

    def _post_download_and_prepare_hook(self) -> None:
        if not is_local(self._target):
            publish(epath.Path(self.data_path), self._target)
        if self._area is not None:
            remove_staged(self._area)

    def _job(
        self, source: AnySource, download_config: tfds.download.DownloadConfig
    ) -> ConversionJob:
        from tfds_builders.conversion.job import ConversionJob

        return ConversionJob(
            source=source,
            directory=self._staging_directory(download_config),
            name=self.name,
            file_format=self.info.file_format,
            shuffle=self._shuffle,
            shard_config=download_config.get_shard_config(),
            skip_damaged=self._skip_damaged,
            storage=self._storage,
            inputs=tuple(state_of(path) for path in source.inputs()),
        )

    def _staging_directory(self, download_config: tfds.download.DownloadConfig) -> epath.Path:
        return staging_directory(self._target, is_shared=_is_on_beam(download_config))

    def _is_archive(self, path: epath.Path) -> bool:
        return self.EXTRACT and path.name.endswith(archives.SUFFIXES)

    def _find_raw_data(
        self, dl_manager: Any, download_config: tfds.download.DownloadConfig
    ) -> epath.Path:
        """Returns where the raw data is, after downloading and extracting it if need be."""
        path, url = self._given_path, self.url()
        if path is None:
            manual_dir = download_config.manual_dir or dl_manager.download_dir / "manual"
            path = epath.Path(manual_dir).expanduser() / self.raw_name()
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            return self._extracted(path, dl_manager, download_config)
        if url is None or self._given_path is not None:
            raise FileNotFoundError(
                f"{self.name}: the raw data is missing: {path} does not exist. Pass the path "
                "(`path=...`, with tfds.load: `builder_kwargs={'path': ...}`), or a `manual_dir` "
                "in the DownloadConfig."
            )
        if not url.startswith(("http://", "https://")):
            return stores.as_path(url)
        downloaded = epath.Path(dl_manager.download(url))
        return self._extracted(downloaded, dl_manager, download_config)

    def _extracted(
        self, path: epath.Path, dl_manager: Any, download_config: tfds.download.DownloadConfig
    ) -> epath.Path:
        if not self._is_archive(path):
            return path
        directory = download_config.extract_dir or dl_manager.download_dir / "extracted"
        return archives.extracted(path, epath.Path(directory).expanduser())

    def _renew_info(self) -> None:
        file_format = self.info.file_format
        self._known_info = self._info()
        self._known_info.set_file_format(file_format)

    def _remove_orphans(self) -> None:
        """Removes what processes that were killed left; this process has the lock."""
        if is_local(self._target):
            orphans = self._target.parent.glob(f"incomplete.*_{self._target.name}")
        elif self._area is not None and is_local(self._area):
            temporary = epath.Path(tempfile.gettempdir())
            orphans = temporary.glob(f"{_made_prefix(self._target)}-*")
        else:
            return
        for path in orphans:
            if path not in (self.data_path, *self.data_path.parents):
                path.rmtree()

    def _warn_of_left_out(self) -> None:
        for split, report in self._reports.items():
            if report.left_out:
                first = report.left_out[0]
                warnings.warn(
                    f"{self.name}, split {split!r}: {len(report.left_out)} damaged episodes were "
                    f"left out; the first is {first.key!r} ({first.why}). See "
                    f'info.metadata["{CONVERSION}"]',
                    stacklevel=2,
                )


def _made_prefix(target: epath.Path) -> str:
    """Returns what the names of the directories begin with that a dataset of a store is made in."""
    digest = hashlib.sha256(os.fspath(target).encode()).hexdigest()[:16]
    return f"rlds-made-{digest}"


def _digest(source: AnySource) -> str:
    """Tells raw data from other raw data, by the names and sizes of the files."""
    inputs = [stores.as_path(path) for path in source.inputs()]
    files = [[path.name, path.stat().length] for path in inputs]
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()[:16]


class NamedBuilder(SourceBuilder, skip_registration=True):  # type: ignore[call-arg]
    """A builder for a source that is given, with a name that is given."""

    RELEASE_NOTES: ClassVar[dict[str, str]] = {}

    def __init__(
        self,
        *,
        name: str,
        source: AnySource,
        version: str,
        description: str | None,
        **kwargs: Any,
    ) -> None:
        self.VERSION = tfds.core.Version(version)
        if kwargs.get("config") is not None:
            self.BUILDER_CONFIGS = [kwargs["config"]]
        self._given_source, self._given_description = source, description
        super().__init__(name=name, version=version, **kwargs)


def check_name(name: str) -> None:
    """Raises a `ValueError` unless `tfds.load` can find a dataset of this name."""
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise ValueError(
            f"{name!r} is not a valid dataset name; use lower-case letters, digits and '_', "
            "beginning with a letter."
        )


def _work(download_config: tfds.download.DownloadConfig, jobs: int | None) -> Work:
    """Returns who does the work that a `DownloadConfig` asks for."""
    if _is_on_beam(download_config):
        from tfds_builders.conversion.beam import in_pipeline

        return in_pipeline(download_config.beam_runner, download_config.beam_options)
    from tfds_builders.conversion.job import in_workers

    return in_workers(jobs or default_jobs())


def _is_on_beam(download_config: tfds.download.DownloadConfig) -> bool:
    return download_config.beam_runner is not None or download_config.beam_options is not None
