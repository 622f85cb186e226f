"""Paths and files, local or in stores."""

from __future__ import annotations

import contextlib
import fnmatch
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, BinaryIO, TypeVar, cast

from etils import epath
from etils.epath import stat_utils
from typing_extensions import override

from rlds_ecosystem.files.stores import _clients as clients
from rlds_ecosystem.files.stores._clients import (
    COPY_BUFFER_SIZE,
    LIBRARIES,
    Entry,
    PathLike,
    StoreClient,
    is_local,
    scheme_of,
)
from rlds_ecosystem.files.stores._objects import NewObject, ReadObject

__all__ = [
    "StorePath",
    "as_path",
    "copy_file",
    "in_parallel",
    "list_directory",
    "move_file",
    "on_disk",
    "open_binary",
    "require_bucket",
    "version_of",
]

T = TypeVar("T")
R = TypeVar("R")

_NUM_THREADS = 16


def as_path(path: PathLike) -> epath.Path:
    """Returns a path or URL as an object like `pathlib.Path`, whose methods raise `OSError`.

    Raises:
      ValueError: The scheme of the URL is not supported.
    """
    if isinstance(path, StorePath):
        return path
    if is_local(path):
        return epath.Path(path)
    name = os.fspath(path)
    if scheme_of(name) not in LIBRARIES:
        prefixes = ", ".join(f"{scheme}://" for scheme in LIBRARIES)
        raise ValueError(
            f"{name!r} is neither a path nor a supported URL, which begins with one of {prefixes}"
        )
    return StorePath(name)


def open_binary(path: PathLike, mode: str = "rb") -> BinaryIO:
    """Opens a file for reading ("rb"), or creates or replaces it ("wb").

    In a store, files for reading are seekable, new files appear on close, and `flush` does nothing.

    Raises:
      OSError: The file cannot be opened.
    """
    if is_local(path):
        return cast(BinaryIO, open(path, mode))
    return cast(BinaryIO, as_path(path).open(mode))


def list_directory(path: PathLike) -> list[Entry]:
    """Returns the entries of a directory, sorted by name, with one request to a store.

    Raises:
      FileNotFoundError: The directory does not exist; or in a store, no object has its prefix.
      OSError: The directory cannot be read.
    """
    if not is_local(path):
        return clients.client_of(os.fspath(path)).entries(os.fspath(path))
    with os.scandir(path) as entries:
        return sorted(Entry(entry.name, _is_directory(entry), None) for entry in entries)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    """True if a path is a directory; False for a link to itself, for which `is_dir` raises."""
    return os.path.isdir(entry) if entry.is_symlink() else entry.is_dir()


def version_of(path: PathLike) -> list[Any]:
    """Returns the version of a file, as JSON values; it changes when the file is rewritten.

    Raises:
      OSError: The file does not exist, or cannot be read.
    """
    if not is_local(path):
        return list(clients.client_of(os.fspath(path)).stat(os.fspath(path)).version)
    stat = os.stat(path)
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]


def require_bucket(path: PathLike) -> None:
    """Checks that the bucket of a URL exists; does nothing for a local path.

    Raises:
      OSError: The bucket does not exist, or the store cannot be reached, or refuses access.
    """
    if is_local(path):
        return
    name = os.fspath(path)
    if scheme_of(name) == "hf":
        raise clients.read_only(name)
    bucket = name.split("/")[2]
    try:
        exists = clients.client_of(name).exists(f"{scheme_of(name)}://{bucket}")
    except PermissionError as error:
        # Users with access to objects of a bucket often have no access to the bucket itself.
        if "403" not in str(error):
            raise
        return
    if not exists:
        raise FileNotFoundError(
            f"no bucket {bucket!r} for {name}; check its name, or create it first"
        )


def in_parallel(function: Callable[[T], R], items: Iterable[T], path: PathLike) -> list[R]:
    """Calls a function for each item: in parallel if `path` is in a store, as stores are slow."""
    items = list(items)
    if is_local(path) or len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="stores") as threads:
        return list(threads.map(function, items))


@contextlib.contextmanager
def on_disk(path: PathLike) -> Iterator[str]:
    """Yields the local path of a file, or of a temporary copy if the file is in a store.

    Raises:
      OSError: The file cannot be copied.
    """
    if is_local(path):
        yield os.fspath(path)
        return
    with tempfile.TemporaryDirectory(prefix="rlds-copy-") as directory:
        copy = os.path.join(directory, os.path.basename(os.fspath(path)))
        copy_file(path, copy)
        yield copy


def copy_file(source: PathLike, target: PathLike) -> None:
    """Copies a file between local folders and stores; replaces an existing file.

    Raises:
      OSError: The source cannot be read, or the target cannot be written.
    """
    if is_local(target):
        with open_binary(source) as reader, open(target, "wb") as writer:
            shutil.copyfileobj(reader, writer, COPY_BUFFER_SIZE)
        return
    source_url, target_url = os.fspath(source), os.fspath(target)
    client = clients.client_of(target_url)
    if scheme_of(source_url) != scheme_of(target_url) or not client.copy(source_url, target_url):
        with open_binary(source) as file:
            client.upload(file, target_url)


def move_file(source: PathLike, target: PathLike) -> None:
    """Moves a file, and replaces an existing file; atomic only between local paths.

    Raises:
      OSError: The file cannot be moved.
    """
    if is_local(source) and is_local(target):
        os.replace(source, target)
        return
    copy_file(source, target)
    as_path(source).unlink()


class StorePath(type(epath.Path("gs://bucket"))):  # type: ignore[misc]
    """The URL of an object or a directory, which is a prefix of object names."""

    @property
    def _url(self) -> str:
        return os.fspath(self)

    @property
    def _client(self) -> StoreClient:
        return clients.client_of(self._url)

    @override
    def exists(self) -> bool:
        return self._client.exists(self._url)

    @override
    def is_dir(self) -> bool:
        try:
            return self._client.stat(self._url).is_dir
        except FileNotFoundError:
            return False

    def iterdir(self) -> Iterator[StorePath]:
        """See `pathlib.Path`; a missing directory is empty."""
        with contextlib.suppress(FileNotFoundError):
            for entry in list_directory(self):
                yield self / entry.name

    @override
    def glob(self, pattern: str) -> Iterator[StorePath]:
        component, _, subpattern = pattern.partition("/")
        with contextlib.suppress(FileNotFoundError):
            for entry in list_directory(self):
                if fnmatch.fnmatchcase(entry.name, component):
                    if not subpattern:
                        yield self / entry.name
                    elif entry.is_dir:
                        yield from (self / entry.name).glob(subpattern)

    @override
    def walk(
        self, *, top_down: bool = True, on_error: Any = None
    ) -> Iterator[tuple[StorePath, list[str], list[str]]]:
        entries: list[Entry] = []
        with contextlib.suppress(FileNotFoundError):
            entries = list_directory(self)
        directories = [entry.name for entry in entries if entry.is_dir]
        entry_names = self, directories, [entry.name for entry in entries if not entry.is_dir]
        if top_down:
            yield entry_names
        for name in directories:
            yield from (self / name).walk(top_down=top_down, on_error=on_error)
        if not top_down:
            yield entry_names

    @override
    def stat(self) -> Any:
        info = self._client.stat(self._url)
        return stat_utils.StatResult(
            is_directory=info.is_dir,
            length=info.size,
            mtime=int(info.seconds),
            owner=None,
            group=None,
            mode=None,
        )

    def mkdir(self, mode: Any = None, parents: bool = False, exist_ok: bool = False) -> None:
        """Checks that the bucket exists; stores have no directories."""
        require_bucket(self)
        if not exist_ok and self.exists():
            raise FileExistsError(f"{self} exists")

    @override
    def open(self, mode: str = "r", *, encoding: str | None = None, **kwargs: Any) -> IO[Any]:
        if mode.replace("b", "") not in ("r", "w"):
            raise io.UnsupportedOperation(f"{self}: objects cannot be opened with mode {mode!r}")
        file: Any = ReadObject(self._url) if "r" in mode else NewObject(self._url)
        return file if "b" in mode else io.TextIOWrapper(file, encoding=encoding or "utf-8")

    @override
    def read_bytes(self) -> bytes:
        return self._client.read(self._url)

    @override
    def read_text(self, encoding: str | None = None, **kwargs: Any) -> str:
        return self.read_bytes().decode(encoding or "utf-8")

    @override
    def write_text(self, data: str, encoding: str | None = None, **kwargs: Any) -> int:
        return self.write_bytes(data.encode(encoding or "utf-8"))

    @override
    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self._client.remove(self._url)
        except FileNotFoundError:
            if not missing_ok:
                raise

    @override
    def rmdir(self) -> None:
        if any(self.iterdir()):
            raise OSError(f"{self} is not empty")

    def rmtree(self, missing_ok: bool = False) -> None:
        """Removes all objects in the directory, if any."""
        paths = [directory / name for directory, _, names in self.walk() for name in names]
        in_parallel(lambda path: path.unlink(missing_ok=True), paths, self)

    @override
    def copy(self, dst: PathLike, overwrite: bool = False) -> epath.Path:
        target = as_path(dst)
        if not overwrite and target.exists():
            raise FileExistsError(f"{target} exists")
        copy_file(self, target)
        return target

    def rename(self, target: PathLike) -> epath.Path:
        """Like `replace`, but raises if the target exists."""
        if as_path(target).exists():
            raise FileExistsError(f"{os.fspath(target)} exists")
        return self.replace(target)

    def replace(self, target: PathLike) -> epath.Path:
        """Moves a file or the files of a directory: copies, and then removes the originals."""
        target = as_path(target)
        if not self.is_dir():
            copy_file(self, target)
            self.unlink()
            return target
        for directory, _, names in list(self.walk()):
            for name in names:
                copy_file(directory / name, target / directory.relative_to(self) / name)
        self.rmtree()
        return target


# TensorFlow opens none of these schemes, so the path class of epath does not work.
epath.register_path_cls(["s3://", "hf://"])(StorePath)
