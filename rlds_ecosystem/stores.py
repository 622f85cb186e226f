"""Files in object stores (`gs://`, `s3://`), and paths that are files there or on this machine.

All files at URLs are opened, listed and written here. An object appears in its store when it is
complete, and is replaced as a whole: nothing can be appended to it, and there are no directories
but the names of objects. Nothing that was seen in a store is remembered: other processes write too.

`gs://` goes through TensorFlow where it is installed, as in TensorFlow Datasets, or through gcsfs
if the environment variable `EPATH_USE_TF` is 0. All others go through fsspec: `s3://` through s3fs.
"""

from __future__ import annotations

import contextlib
import fnmatch
import importlib
import importlib.util
import io
import os
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import IO, Any, BinaryIO, NamedTuple, Protocol, TypeVar, cast

from etils import epath
from etils.epath import stat_utils

import rlds_ecosystem

__all__ = [
    "Entry",
    "StorePath",
    "as_path",
    "copy_file",
    "in_parallel",
    "is_local",
    "list_directory",
    "move_file",
    "on_disk",
    "open_binary",
    "require_bucket",
    "version_of",
]

PathLike = str | os.PathLike[str]
T = TypeVar("T")
R = TypeVar("R")

# What a request of TensorFlow fetches: this much from where it begins. It cannot be asked for less.
_TENSORFLOW_BLOCK = int(os.environ.get("GCS_READ_CACHE_BLOCK_SIZE_MB", "") or 64) << 20
_BLOCK = 1 << 20
# Who reads on gets more at a time, up to this many blocks.
_MAX_BLOCKS = 8
# How much of what was fetched is kept, for all open files together.
_MAX_CACHED = 1 << 28

_COPY_STEP = 1 << 23

# How long a store may take that does not answer, in seconds, and the bytes that it takes in one.
_PATIENCE = 120.0
_SLOWEST = 1 << 17

_NUM_THREADS = 16

# The libraries through which fsspec opens what TensorFlow does not.
_LIBRARIES = {"gs": "gcsfs", "s3": "s3fs"}
_LOG_IN = {
    "gs": "log in with `gcloud auth application-default login`, or set "
    "GOOGLE_APPLICATION_CREDENTIALS",
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
}


class Entry(NamedTuple):
    """What is known of a file or directory.

    Attributes:
      name: The last part of its path.
      is_dir: Whether it is a directory.
      size: Its size in bytes; None where it is not known without another request.
    """

    name: str
    is_dir: bool
    size: int | None


def is_local(path: PathLike) -> bool:
    """Whether the path is one of the operating system, rather than a URL such as `gs://...`."""
    return "://" not in os.fspath(path)


def as_path(path: PathLike) -> epath.Path:
    """The path or URL as an object like `pathlib.Path`, whose methods raise `OSError`.

    Raises:
      ValueError: There is no client for such URLs.
    """
    if isinstance(path, StorePath):
        return path
    if is_local(path):
        return epath.Path(path)
    name = os.fspath(path)
    if _scheme(name) not in _LIBRARIES:
        known = ", ".join(f"{scheme}://" for scheme in _LIBRARIES)
        raise ValueError(f"{name!r} is neither a path nor a URL that can be opened: {known}")
    return StorePath(name)


def open_binary(path: PathLike, mode: str = "rb") -> BinaryIO:
    """Opens a file for reading ("rb"), or makes or replaces it ("wb").

    A file of a store can be seeked in when it is read, and appears there when it is closed;
    `flush` does nothing.

    Raises:
      OSError: It cannot be opened.
    """
    if is_local(path):
        return cast(BinaryIO, open(path, mode))
    return cast(BinaryIO, as_path(path).open(mode))


def list_directory(path: PathLike) -> list[Entry]:
    """What is in a directory, by name; a store is asked once.

    Raises:
      FileNotFoundError: There is no such directory; or in a store, nothing under that name.
      OSError: It cannot be read.
    """
    if not is_local(path):
        return _store(os.fspath(path)).entries(os.fspath(path))
    with os.scandir(path) as found:
        return sorted(Entry(entry.name, entry.is_dir(), None) for entry in found)


def version_of(path: PathLike) -> list[Any]:
    """What is another list, of JSON values, when a file was written anew.

    Raises:
      OSError: There is no such file, or it cannot be read.
    """
    if not is_local(path):
        return list(_store(os.fspath(path)).stat(os.fspath(path)).version)
    found = os.stat(path)
    return [found.st_size, found.st_mtime_ns, found.st_ino]


def require_bucket(path: PathLike) -> None:
    """Does nothing if a path is local, or in a bucket that is there.

    Raises:
      OSError: There is no such bucket, or the store cannot be reached, or refuses to answer.
    """
    if is_local(path):
        return
    name = os.fspath(path)
    bucket = name.split("/")[2]
    try:
        is_there = _store(name).exists(f"{_scheme(name)}://{bucket}")
    except PermissionError as error:
        # Those who may use the objects of a bucket may often not ask for the bucket itself.
        if "403" not in str(error):
            raise
        return
    if not is_there:
        raise FileNotFoundError(
            f"there is no bucket {bucket!r} for {name}; check its name, or make it first"
        )


def in_parallel(function: Callable[[T], R], items: Iterable[T], path: PathLike) -> list[R]:
    """Calls a function for each item; if `path` is in a store, which takes its time, at once."""
    items = list(items)
    if is_local(path) or len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="stores") as threads:
        return list(threads.map(function, items))


@contextlib.contextmanager
def on_disk(path: PathLike) -> Iterator[str]:
    """The path of a file on this machine: that of a copy, for a while, if it is in a store.

    Raises:
      OSError: It cannot be copied.
    """
    if is_local(path):
        yield os.fspath(path)
        return
    with tempfile.TemporaryDirectory(prefix="rlds-copy-") as directory:
        copy = os.path.join(directory, os.path.basename(os.fspath(path)))
        copy_file(path, copy)
        yield copy


def move_file(source: PathLike, target: PathLike) -> None:
    """Moves a file, over one that is there: at once on this machine, else it is copied.

    Raises:
      OSError: It cannot be moved.
    """
    if is_local(source) and is_local(target):
        os.replace(source, target)
        return
    copy_file(source, target)
    as_path(source).unlink()


# --- Paths.


class StorePath(type(epath.Path("gs://bucket"))):  # type: ignore[misc]
    """The URL of an object, or of a directory: what the names of objects begin with."""

    @property
    def _url(self) -> str:
        return os.fspath(self)

    @property
    def _client(self) -> _Store:
        return _store(self._url)

    def exists(self) -> bool:
        """See `pathlib.Path`."""
        return self._client.exists(self._url)

    def is_dir(self) -> bool:
        """See `pathlib.Path`."""
        try:
            return self._client.stat(self._url).is_dir
        except FileNotFoundError:
            return False

    def is_file(self) -> bool:
        """See `pathlib.Path`."""
        return self.exists() and not self.is_dir()

    def iterdir(self) -> Iterator[StorePath]:
        """See `pathlib.Path`; there is nothing in a directory that is not there."""
        with contextlib.suppress(FileNotFoundError):
            for entry in list_directory(self):
                yield self / entry.name

    def glob(self, pattern: str) -> Iterator[StorePath]:
        """See `pathlib.Path`."""
        first, _, rest = pattern.partition("/")
        with contextlib.suppress(FileNotFoundError):
            for entry in list_directory(self):
                if fnmatch.fnmatchcase(entry.name, first):
                    if not rest:
                        yield self / entry.name
                    elif entry.is_dir:
                        yield from (self / entry.name).glob(rest)

    def walk(
        self, *, top_down: bool = True, on_error: Any = None
    ) -> Iterator[tuple[StorePath, list[str], list[str]]]:
        """See `pathlib.Path`."""
        entries: list[Entry] = []
        with contextlib.suppress(FileNotFoundError):
            entries = list_directory(self)
        directories = [entry.name for entry in entries if entry.is_dir]
        here = self, directories, [entry.name for entry in entries if not entry.is_dir]
        if top_down:
            yield here
        for name in directories:
            yield from (self / name).walk(top_down=top_down, on_error=on_error)
        if not top_down:
            yield here

    def stat(self) -> Any:
        """See `pathlib.Path`."""
        found = self._client.stat(self._url)
        return stat_utils.StatResult(
            is_directory=found.is_dir,
            length=found.size,
            mtime=int(found.seconds),
            owner=None,
            group=None,
            mode=None,
        )

    def mkdir(self, mode: Any = None, parents: bool = False, exist_ok: bool = False) -> None:
        """Sees to it that there is a bucket: there are no directories."""
        require_bucket(self)
        if not exist_ok and self.exists():
            raise FileExistsError(f"{self} exists")

    def open(self, mode: str = "r", *, encoding: str | None = None, **kwargs: Any) -> IO[Any]:
        """See `pathlib.Path`."""
        if mode.replace("b", "") not in ("r", "w"):
            raise io.UnsupportedOperation(f"{self}: objects cannot be opened with mode {mode!r}")
        file: Any = _ReadObject(self._url) if "r" in mode else _NewObject(self._url)
        return file if "b" in mode else io.TextIOWrapper(file, encoding=encoding or "utf-8")

    def read_bytes(self) -> bytes:
        """See `pathlib.Path`."""
        return self._client.read(self._url)

    def read_text(self, encoding: str | None = None, **kwargs: Any) -> str:
        """See `pathlib.Path`."""
        return self.read_bytes().decode(encoding or "utf-8")

    def write_bytes(self, data: bytes) -> int:
        """See `pathlib.Path`."""
        with self.open("wb") as file:
            return file.write(data)

    def write_text(self, data: str, encoding: str | None = None, **kwargs: Any) -> int:
        """See `pathlib.Path`."""
        return self.write_bytes(data.encode(encoding or "utf-8"))

    def unlink(self, missing_ok: bool = False) -> None:
        """See `pathlib.Path`."""
        try:
            self._client.remove(self._url)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmdir(self) -> None:
        """See `pathlib.Path`."""
        if any(self.iterdir()):
            raise OSError(f"{self} is not empty")

    def rmtree(self, missing_ok: bool = False) -> None:
        """Removes all objects in the directory; there may be none."""
        paths = [directory / name for directory, _, names in self.walk() for name in names]
        in_parallel(lambda path: path.unlink(missing_ok=True), paths, self)

    def copy(self, dst: PathLike, overwrite: bool = False) -> epath.Path:
        """See `pathlib.Path`."""
        target = as_path(dst)
        if not overwrite and target.exists():
            raise FileExistsError(f"{target} exists")
        copy_file(self, target)
        return target

    def rename(self, target: PathLike) -> epath.Path:
        """Like `replace`, unless there is something."""
        if as_path(target).exists():
            raise FileExistsError(f"{os.fspath(target)} exists")
        return self.replace(target)

    def replace(self, target: PathLike) -> epath.Path:
        """Moves a file, or the files of a directory: copies them, and then removes them."""
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


# TensorFlow opens no s3://, so that nothing works with the path that epath itself has for it.
epath.register_path_cls("s3://")(StorePath)


def copy_file(source: PathLike, target: PathLike) -> None:
    """Copies a file, whichever of the two is in a store; replaces what is there.

    Raises:
      OSError: It cannot be read or written.
    """
    if not is_local(source) and not is_local(target) and _scheme(source) == _scheme(target):
        _store(os.fspath(source)).copy(os.fspath(source), os.fspath(target))
        return
    with open_binary(source) as here, open_binary(target, "wb") as there:
        shutil.copyfileobj(here, there, _COPY_STEP)


# --- Files.


class _ReadObject(io.RawIOBase):
    """An object, to be read at any place. Each range is fetched once, as far as memory goes."""

    def __init__(self, url: str) -> None:
        self.name = url
        self._client = _store(url)
        self._found = self._client.stat(url)
        if self._found.is_dir:
            raise IsADirectoryError(f"{url} is no object, but the beginning of the names of some")
        self._size = self._found.size
        self._blocks = _Blocks(self._client, url, self._found)
        self._pos = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._pos, io.SEEK_END: self._size}[whence]
        if begin + offset < 0:
            raise ValueError(f"{self.name}: negative position {begin + offset}")
        self._pos = begin + offset
        return self._pos

    def tell(self) -> int:
        return self._pos

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        end = min(self._pos + len(view), self._size)
        begin = pos = self._pos
        while pos < end:
            block, offset = self._blocks.at(pos, end)
            piece = memoryview(block)[offset : offset + end - pos]
            view[pos - begin : pos - begin + len(piece)] = piece
            pos += len(piece)
        self._pos = max(pos, begin)
        return self._pos - begin


class _Cache:
    """The blocks of objects that were last used, of all files together."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[tuple[Any, int], bytes] = OrderedDict()
        self._num_bytes = 0
        self._lock = threading.Lock()

    def get(self, key: tuple[Any, int]) -> bytes | None:
        """The block; None if it is not kept."""
        with self._lock:
            if key in self._blocks:
                self._blocks.move_to_end(key)
            return self._blocks.get(key)

    def put(self, key: tuple[Any, int], block: bytes) -> None:
        """Keeps a block, and drops those that were not used for the longest time."""
        with self._lock:
            self._num_bytes += len(block) - len(self._blocks.pop(key, b""))
            self._blocks[key] = block
            while self._num_bytes > _MAX_CACHED and len(self._blocks) > 1:
                self._num_bytes -= len(self._blocks.popitem(last=False)[1])


_cache = _Cache()


def _begin_anew() -> None:
    # Another thread may have held the lock when this process was forked.
    _cache._lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # Not on Windows, which does not fork.
    os.register_at_fork(after_in_child=_begin_anew)


class _Blocks:
    """The blocks of an object, fetched as they are asked for."""

    def __init__(self, client: _Store, url: str, found: _Found) -> None:
        self._fetch = client.fetcher(url)
        self._url = url
        self._size = found.size
        self._block_size = client.block_size
        # Another file may be the same object, later; one that was replaced is another object.
        self._object = (type(client), url, *found.version)
        self._next = -1  # Where reading goes on, if it goes on.
        self._num_blocks = 1

    def at(self, pos: int, end: int) -> tuple[bytes, int]:
        """The block that holds a position, and where in it; those up to `end` will be asked for."""
        index = pos // self._block_size
        block = _cache.get((self._object, index))
        if block is None:
            block = self._fetch_from(index, -(-end // self._block_size))
        return block, pos - index * self._block_size

    def _fetch_from(self, index: int, end_index: int) -> bytes:
        goes_on = index == self._next and self._block_size == _BLOCK
        self._num_blocks = min(2 * self._num_blocks, _MAX_BLOCKS) if goes_on else 1
        count = min(max(end_index - index, self._num_blocks), _MAX_BLOCKS)
        kept = (i for i in range(1, count) if _cache.get((self._object, index + i)) is not None)
        count = next(kept, count)
        begin = index * self._block_size
        end = min(begin + count * self._block_size, self._size)
        data = self._fetch(begin, end)
        if len(data) != end - begin:
            raise OSError(
                f"{self._url}: got {len(data)} of the {end - begin} bytes from {begin} on: it was "
                "replaced while it was read; open it again"
            )
        self._next = index + count
        blocks = [data[i : i + self._block_size] for i in range(0, len(data), self._block_size)]
        for number, block in enumerate(blocks, index):
            _cache.put((self._object, number), block)
        return blocks[0]


class _NewObject(io.RawIOBase):
    """A temporary file that becomes an object when it is closed, or `publish` is called."""

    def __init__(self, url: str) -> None:
        self.name = url
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (kept open)
        self._is_published = False

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._is_published = False
        return self._file.write(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def truncate(self, size: int | None = None, /) -> int:
        self._is_published = False
        return self._file.truncate(size)

    def publish(self) -> None:
        """Makes or replaces the object with what was written, unless it is that already."""
        if self._is_published:
            return
        end = self._file.tell()
        self._file.seek(0)
        try:
            _store(self.name).upload(self._file, self.name)
        finally:
            self._file.seek(end)
        self._is_published = True

    def discard(self) -> None:
        """Closes the file, of which there will be no object."""
        self._is_published = True
        self.close()

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.publish()
        finally:
            super().close()
            self._file.close()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # What a `with` could not write to its end is not an object.
        self.close() if exc_type is None else self.discard()

    def __del__(self) -> None:
        self.discard()


# --- Clients.


class _Found(NamedTuple):
    """What a store says about an object, or about the directory of that name."""

    is_dir: bool
    size: int
    seconds: float  # When it was written.
    version: tuple[Any, ...]  # Another one after it was written anew.


class _Store(Protocol):
    """What can be done in a store. Raises `OSError`."""

    block_size: int

    def exists(self, url: str) -> bool: ...
    def stat(self, url: str) -> _Found: ...
    def entries(self, url: str) -> list[Entry]: ...
    def read(self, url: str) -> bytes: ...
    def fetcher(self, url: str) -> Callable[[int, int], bytes]: ...
    def upload(self, file: BinaryIO, url: str) -> None: ...
    def copy(self, source: str, target: str) -> None: ...
    def remove(self, url: str) -> None: ...


def _within(seconds: float, action: Callable[[], None]) -> None:
    """Does something; gives up waiting for it, and leaves it alone, after some time."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="upload", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise ConnectionError(f"there was no answer for {seconds:.0f} seconds")
    if failures:
        raise failures[0]


def _scheme(url: PathLike) -> str:
    return os.fspath(url).partition("://")[0]


def _store(url: str) -> _Store:
    scheme = _scheme(url)
    if scheme == "gs" and _wants_tensorflow():
        return _TensorFlowStore()
    return _FsspecStore(scheme)


def _wants_tensorflow() -> bool:
    """The same choice as that of epath, which TensorFlow Datasets uses."""
    if os.environ.get("EPATH_USE_TF", "").lower() in ("false", "no", "f", "0"):
        return False
    return importlib.util.find_spec("tensorflow") is not None


class _TensorFlowStore:
    """Google Cloud Storage through TensorFlow."""

    block_size = _TENSORFLOW_BLOCK

    def __init__(self) -> None:
        # It takes its time: it is loaded when a URL is used that it opens.
        self._gfile: Any = importlib.import_module("tensorflow").io.gfile

    def exists(self, url: str) -> bool:
        with _named(url):
            return bool(self._gfile.exists(url))

    def stat(self, url: str) -> _Found:
        with _named(url):
            found = self._gfile.stat(url)
        seconds = found.mtime_nsec / 1e9
        return _Found(found.is_directory, found.length, seconds, (found.length, found.mtime_nsec))

    def entries(self, url: str) -> list[Entry]:
        with _named(url):
            names = self._gfile.listdir(url)
        return sorted(
            Entry(name.rstrip("/"), name.endswith("/"), None) for name in names if name.strip("/")
        )

    def read(self, url: str) -> bytes:
        with _named(url), self._gfile.GFile(url, "rb") as file:
            return bytes(file.read())

    def fetcher(self, url: str) -> Callable[[int, int], bytes]:
        file = self._gfile.GFile(url, "rb")
        lock = threading.Lock()

        def fetch(begin: int, end: int) -> bytes:
            with lock, _named(url):
                file.seek(begin)
                return bytes(file.read(end - begin))

        return fetch

    def upload(self, file: BinaryIO, url: str) -> None:
        def write() -> None:
            with self._gfile.GFile(url, "wb") as target:
                shutil.copyfileobj(file, target, _COPY_STEP)

        begin = file.tell()
        size = file.seek(0, io.SEEK_END) - begin
        file.seek(begin)
        # It tries ten times what it has tried ten times, and so for half an hour.
        with _named(url):
            _within(_PATIENCE + size / _SLOWEST, write)

    def copy(self, source: str, target: str) -> None:
        with open_binary(source) as file:
            self.upload(file, target)

    def remove(self, url: str) -> None:
        with _named(url):
            self._gfile.remove(url)


class _FsspecStore:
    """A store that fsspec knows."""

    block_size = _BLOCK

    def __init__(self, scheme: str) -> None:
        try:
            rlds_ecosystem.import_extra(_LIBRARIES[scheme])
            fsspec = importlib.import_module("fsspec")
        except ImportError as error:
            raise OSError(f"{scheme}:// cannot be opened: {error}") from error
        # This returns the same object every time, but another one in a process that was forked.
        self._fs: Any = fsspec.filesystem(scheme, use_listings_cache=False)

    def exists(self, url: str) -> bool:
        try:
            self.stat(url)  # The `exists` of fsspec takes all errors for "no".
        except FileNotFoundError:
            return False
        return True

    def stat(self, url: str) -> _Found:
        with _named(url):
            info = self._fs.info(url)
        time = info.get("mtime") or info.get("LastModified")
        seconds = time.timestamp() if hasattr(time, "timestamp") else 0.0
        marks = ("generation", "ETag", "etag", "LastModified", "mtime")
        version = (info["size"], *(str(info[mark]) for mark in marks if info.get(mark)))
        return _Found(info["type"] == "directory", info["size"] or 0, seconds, version)

    def entries(self, url: str) -> list[Entry]:
        with _named(url):
            found = self._fs.ls(url, detail=True)
        own = url.partition("://")[2].strip("/")
        entries = [
            Entry(
                info["name"].rstrip("/").rpartition("/")[2],
                info["type"] == "directory",
                info["size"],
            )
            for info in found
            if info["name"].strip("/") != own
        ]
        return sorted(entries)

    def read(self, url: str) -> bytes:
        with _named(url):
            return bytes(self._fs.cat_file(url))

    def fetcher(self, url: str) -> Callable[[int, int], bytes]:
        def fetch(begin: int, end: int) -> bytes:
            with _named(url):
                return bytes(self._fs.cat_file(url, start=begin, end=end))

        return fetch

    def upload(self, file: BinaryIO, url: str) -> None:
        with _named(url):
            target = self._fs.open(url, "wb")
            try:
                shutil.copyfileobj(file, target, _COPY_STEP)
                target.close()
            except BaseException:
                target.closed = True  # Or it would be published when it is garbage collected.
                with contextlib.suppress(Exception):
                    target.discard()
                raise

    def copy(self, source: str, target: str) -> None:
        with _named(source):
            self._fs.cp_file(source, target)

    def remove(self, url: str) -> None:
        with _named(url):
            self._fs.rm_file(url)


# By the names of their classes, so that none of the packages that have them need be loaded.
_KINDS: dict[type[OSError], set[str]] = {
    FileNotFoundError: {"NotFoundError", "NoSuchBucket", "NoSuchKey"},
    PermissionError: {
        "PermissionDeniedError",
        "UnauthenticatedError",
        "NoCredentialsError",
        "PartialCredentialsError",
        "DefaultCredentialsError",
        "RefreshError",
        "ClientAuthenticationError",
    },
    FileExistsError: {
        "AlreadyExistsError",
    },
    ConnectionError: {
        "AbortedError",
        "DeadlineExceededError",
        "UnavailableError",
        "ClientConnectionError",
        "ClientConnectorError",
        "EndpointConnectionError",
        "TransportError",
        "TimeoutError",
    },
}
_KINDS_OF_CODES: dict[str, type[OSError]] = {
    "401": PermissionError,
    "403": PermissionError,
    "404": FileNotFoundError,
}


@contextlib.contextmanager
def _named(url: str) -> Iterator[None]:
    """Turns what clients raise into an `OSError` of a fitting kind that names the object."""
    try:
        yield
    except (TypeError, AttributeError, NameError):  # What no store is to blame for.
        raise
    except Exception as error:
        raise _os_error(url, error) from error


def _os_error(url: str, error: Exception) -> OSError:
    text = " ".join(str(error).split())
    why = f"{type(error).__name__}: {text}"[:400]
    names = {cls.__name__ for cls in type(error).__mro__}
    code = str(getattr(error, "code", ""))
    kind = next((k for k, known in _KINDS.items() if isinstance(error, k) or names & known), None)
    kind = kind or _KINDS_OF_CODES.get(code, OSError)
    if kind is PermissionError:
        log_in = _LOG_IN.get(_scheme(url), "log in")
        return PermissionError(f"{url}: access was refused; {log_in} ({why})")
    if kind is FileNotFoundError:
        what = "object"
        if "bucket does not exist" in text or "NoSuchBucket" in text:
            what = f"bucket as {url.split('/')[2]!r}; check its name, or make it first"
        return FileNotFoundError(f"{url}: there is no such {what}")
    if kind is ConnectionError:
        return ConnectionError(f"{url}: the store cannot be reached ({why})")
    return kind(f"{url}: {why}")
