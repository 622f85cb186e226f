"""The clients of object stores: the operations on a store, for each library.

`gs://` uses TensorFlow if it is installed, as TensorFlow Datasets does, or gcsfs if the environment
variable `EPATH_USE_TF` is 0. `s3://` uses s3fs, and `hf://`, the Hub of Hugging Face, uses
huggingface_hub.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib
import importlib.util
import inspect
import io
import os
import re
import shutil
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

import rlds_ecosystem
from rlds_ecosystem.files.daemon_threads import DaemonThreads

__all__ = [
    "BLOCK_SIZE",
    "COPY_BUFFER_SIZE",
    "LIBRARIES",
    "Entry",
    "FsspecStore",
    "ObjectInfo",
    "PathLike",
    "StoreClient",
    "client_of",
    "is_local",
    "read_only",
    "run_with_timeout",
    "scheme_of",
]

T = TypeVar("T")

PathLike = str | os.PathLike[str]
Version = tuple[Any, ...]

# The minimum size of a request of TensorFlow.
_TENSORFLOW_BLOCK_SIZE = int(os.environ.get("GCS_READ_CACHE_BLOCK_SIZE_MB", "") or 64) << 20
BLOCK_SIZE = 1 << 20

COPY_BUFFER_SIZE = 1 << 23

# The timeout of a store; uploads add the time of their bytes at the minimum rate.
_TIMEOUT_S = 120.0
_MIN_BYTES_PER_S = 1 << 17

# The libraries of the stores, by the scheme of URLs.
LIBRARIES = {"gs": "gcsfs", "hf": "huggingface_hub", "s3": "s3fs"}
_HUB_URL = re.compile(
    r"hf://(datasets/)?([^/@]+/[^/@]+)(?:@(refs/(?:convert|pr)/[^/]+|[^/]+))?(?:/(.*))?"
)
_LOGIN_HINTS = {
    "gs": "log in with `gcloud auth application-default login`, or set "
    "GOOGLE_APPLICATION_CREDENTIALS",
    "hf": "log in with `hf auth login`, or set HF_TOKEN",
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
}


class Entry(NamedTuple):
    """An entry of a directory: a file or another directory.

    Attributes:
      name: The last component of the path.
      is_dir: True for a directory.
      size: The size in bytes; None if unknown without another request.
    """

    name: str
    is_dir: bool
    size: int | None


def is_local(path: PathLike) -> bool:
    """True if a path is local, False for a URL such as `gs://...`."""
    return "://" not in os.fspath(path)


class ObjectInfo(NamedTuple):
    """The size, time and version of an object in a store, or of a directory."""

    is_dir: bool
    size: int
    seconds: float  # The modification time.
    version: Version  # The version changes on each write.


class StoreClient(Protocol):
    """The operations of an object store, which raise `OSError`.

    Attributes:
      block_size: The best size of a request, in bytes.
      keeps_versions: True if a request for a version never returns another version.
    """

    block_size: int
    keeps_versions: bool

    def exists(self, url: str) -> bool:
        """True if a URL is an existing object or directory."""
        try:  # The `exists` of fsspec returns False for all errors.
            self.stat(url)
        except FileNotFoundError:
            return False
        return True

    def stat(self, url: str) -> ObjectInfo: ...
    def entries(self, url: str) -> list[Entry]: ...
    def read(self, url: str) -> bytes: ...
    def fetcher(
        self, url: str, version: Version = (), timeout: float | None = None
    ) -> Callable[[int, int], bytes]: ...  # The function raises after `timeout` seconds.
    def upload(self, file: BinaryIO, url: str) -> None: ...
    def copy(self, source: str, target: str) -> bool: ...  # Returns False if the store cannot copy.
    def remove(self, url: str) -> None: ...


def run_with_timeout(seconds: float, action: Callable[[], T]) -> T:
    """Runs a function in a thread; raises if it takes longer than a time limit."""
    future = DaemonThreads(1, "store").submit(action)
    concurrent.futures.wait([future], seconds)
    if not future.done():
        raise _create_timeout_error(seconds)
    return future.result()


def _create_timeout_error(seconds: float | None) -> ConnectionError:
    after = "" if seconds is None else f" for {seconds:.0f} seconds"
    return ConnectionError(f"no answer{after}")


def _limit_time(
    fetch: Callable[[int, int], bytes], timeout: float | None
) -> Callable[[int, int], bytes]:
    if timeout is None:
        return fetch
    return lambda begin, end: run_with_timeout(timeout, lambda: fetch(begin, end))


def scheme_of(url: PathLike) -> str:
    return os.fspath(url).partition("://")[0]


def client_of(url: str) -> StoreClient:
    scheme = scheme_of(url)
    if scheme == "gs" and _prefers_tensorflow():
        return _TensorFlowStore()
    return HubStore() if scheme == "hf" else FsspecStore(scheme)


def _prefers_tensorflow() -> bool:
    """True if epath, which TensorFlow Datasets uses, would choose TensorFlow."""
    if os.environ.get("EPATH_USE_TF", "").lower() in ("false", "no", "f", "0"):
        return False
    return importlib.util.find_spec("tensorflow") is not None


class _TensorFlowStore(StoreClient):
    """Google Cloud Storage through TensorFlow."""

    block_size, keeps_versions = _TENSORFLOW_BLOCK_SIZE, False

    def __init__(self) -> None:
        # The import is slow.
        self._gfile: Any = importlib.import_module("tensorflow").io.gfile

    def exists(self, url: str) -> bool:
        with _convert_errors(url):
            return bool(self._gfile.exists(url))

    def stat(self, url: str) -> ObjectInfo:
        with _convert_errors(url):
            stat = self._gfile.stat(url)
        seconds = stat.mtime_nsec / 1e9
        return ObjectInfo(stat.is_directory, stat.length, seconds, (stat.length, stat.mtime_nsec))

    def entries(self, url: str) -> list[Entry]:
        with _convert_errors(url):
            names = self._gfile.listdir(url)
        return sorted(
            Entry(name.rstrip("/"), name.endswith("/"), None) for name in names if name.strip("/")
        )

    def read(self, url: str) -> bytes:
        with _convert_errors(url), self._gfile.GFile(url, "rb") as file:
            return bytes(file.read())

    def fetcher(
        self, url: str, version: Version = (), timeout: float | None = None
    ) -> Callable[[int, int], bytes]:
        file = self._gfile.GFile(url, "rb")
        lock = threading.Lock()

        def fetch(begin: int, end: int) -> bytes:
            with lock, _convert_errors(url):
                file.seek(begin)
                return bytes(file.read(end - begin))

        return _limit_time(fetch, timeout)

    def upload(self, file: BinaryIO, url: str) -> None:
        def write() -> None:
            with self._gfile.GFile(url, "wb") as target:
                target.write(b"")  # An empty file needs one write to become an object.
                shutil.copyfileobj(file, target, COPY_BUFFER_SIZE)

        start = file.tell()
        size = file.seek(0, io.SEEK_END) - start
        file.seek(start)
        # Without a timeout, nested retries of TensorFlow take half an hour.
        with _convert_errors(url):
            run_with_timeout(_TIMEOUT_S + size / _MIN_BYTES_PER_S, write)

    def copy(self, source: str, target: str) -> bool:
        return False

    def remove(self, url: str) -> None:
        with _convert_errors(url):
            self._gfile.remove(url)


class FsspecStore(StoreClient):
    """A store of an fsspec file system: Google Cloud Storage or S3."""

    block_size = BLOCK_SIZE

    def __init__(self, scheme: str) -> None:
        try:
            rlds_ecosystem.import_extra(LIBRARIES[scheme])
            fsspec = importlib.import_module("fsspec")
        except ImportError as error:
            raise OSError(f"{scheme}:// cannot be opened: {error}") from error
        # fsspec caches the file system, except in forked processes.
        self._fs: Any = fsspec.filesystem(scheme, use_listings_cache=False)
        # Older versions of gcsfs ignore the argument `generation`.
        has_generations = (
            scheme == "gs" and "generation" in inspect.signature(self._fs.url).parameters
        )
        self.keeps_versions = has_generations

    def stat(self, url: str) -> ObjectInfo:
        with _convert_errors(url):
            info = self._fs.info(url)
        time = info.get("mtime") or info.get("LastModified")
        seconds = time.timestamp() if hasattr(time, "timestamp") else 0.0
        version_keys = ("generation", "ETag", "etag", "LastModified", "mtime")
        version = (info["size"], *(str(info[key]) for key in version_keys if info.get(key)))
        return ObjectInfo(info["type"] == "directory", info["size"] or 0, seconds, version)

    def entries(self, url: str) -> list[Entry]:
        with _convert_errors(url):
            infos = self._fs.ls(url, detail=True)
        own_name = url.partition("://")[2].strip("/")
        entries = [
            Entry(
                info["name"].rstrip("/").rpartition("/")[2],
                info["type"] == "directory",
                info["size"],
            )
            for info in infos
            if info["name"].strip("/") != own_name
        ]
        return sorted(entries)

    def read(self, url: str) -> bytes:
        with _convert_errors(url):
            return bytes(self._fs.cat_file(url))

    def fetcher(
        self, url: str, version: Version = (), timeout: float | None = None
    ) -> Callable[[int, int], bytes]:
        options: dict[str, Any] = {"timeout": timeout}
        if version and self.keeps_versions:
            options["generation"] = version[1]  # `version` is the size, then the generation.

        def fetch(begin: int, end: int) -> bytes:
            with _convert_errors(url):
                try:
                    return bytes(self._fs.cat_file(url, start=begin, end=end, **options))
                except TimeoutError as error:
                    raise _create_timeout_error(timeout) from error

        return fetch

    def upload(self, file: BinaryIO, url: str) -> None:
        with _convert_errors(url):
            target = self._fs.open(url, "wb")
            try:
                shutil.copyfileobj(file, target, COPY_BUFFER_SIZE)
                target.close()
            except BaseException:
                target.closed = True  # Garbage collection would publish an open file.
                with contextlib.suppress(Exception):
                    target.discard()
                raise

    def copy(self, source: str, target: str) -> bool:
        with _convert_errors(source):
            self._fs.cp_file(source, target)
        return True

    def remove(self, url: str) -> None:
        with _convert_errors(url):
            self._fs.rm_file(url)


class _Commit(NamedTuple):
    """The files of a commit of a repository on the Hub.

    Attributes:
      repository: The repository and revision, as arguments of huggingface_hub.
      folders: The entries of each folder; "" is the root.
      ids: The content hash of each file.
    """

    repository: dict[str, str]
    folders: dict[str, list[Entry]]
    ids: dict[str, str]


# A process reads the first commit that it requested until it creates a commit, to save requests.
_commits: dict[tuple[str, str, str | None], _Commit] = {}


def _read_commit(repo_type: str, repo_id: str, revision: str | None) -> _Commit:
    api = importlib.import_module("huggingface_hub").HfApi()
    repository = {"repo_id": repo_id, "repo_type": repo_type}
    sha = api.repo_info(**repository, revision=revision).sha
    commit = _Commit({**repository, "revision": sha}, {"": []}, {})
    for item in api.list_repo_tree(**commit.repository, recursive=True):
        folder, _, name = item.path.rpartition("/")
        is_dir = not hasattr(item, "blob_id")
        entry = Entry(name, is_dir, None if is_dir else item.size)
        commit.folders.setdefault(folder, []).append(entry)
        if is_dir:
            commit.folders.setdefault(item.path, [])
        else:
            commit.ids[item.path] = item.blob_id
    return commit


class HubStore(StoreClient):
    """The Hub of Hugging Face, read by commit: `hf://datasets/<owner>/<name>[@<revision>]/<path>`."""

    block_size, keeps_versions = BLOCK_SIZE, True

    def __init__(self) -> None:
        try:
            self._hub: Any = rlds_ecosystem.import_extra("huggingface_hub")
        except ImportError as error:
            raise OSError(f"hf:// cannot be opened: {error}") from error

    def _parse(self, url: str) -> tuple[tuple[str, str, str | None], str]:
        match = _HUB_URL.fullmatch(url)
        if match is None:
            raise OSError(f"{url}: expected hf://datasets/<owner>/<name>[@<revision>][/<path>]")
        kind, name, revision, path = match.groups()
        revision = revision and urllib.parse.unquote(revision)
        return ("dataset" if kind else "model", name, revision), (path or "").strip("/")

    def _find_commit(self, url: str) -> tuple[_Commit, str]:
        repository, path = self._parse(url)
        if repository not in _commits:
            with _convert_errors(url):
                _commits[repository] = _read_commit(*repository)
        return _commits[repository], path

    def stat(self, url: str) -> ObjectInfo:
        commit, path = self._find_commit(url)
        if path in commit.folders:
            return ObjectInfo(True, 0, 0.0, ())
        folder, _, name = path.rpartition("/")
        with _convert_errors(url):
            entries = commit.folders.get(folder, [])
            size = next((entry.size for entry in entries if entry.name == name), None)
            if size is None:
                raise FileNotFoundError
        return ObjectInfo(False, size, 0.0, (size, commit.ids[path]))

    def entries(self, url: str) -> list[Entry]:
        commit, path = self._find_commit(url)
        with _convert_errors(url):
            if path not in commit.folders:
                raise FileNotFoundError
        return sorted(commit.folders[path])

    def read(self, url: str) -> bytes:
        size = self.stat(url).size
        return self.fetcher(url)(0, size) if size else b""

    def fetcher(
        self, url: str, version: Version = (), timeout: float | None = None
    ) -> Callable[[int, int], bytes]:
        commit, path = self._find_commit(url)
        address = self._hub.hf_hub_url(filename=path, **commit.repository)

        def fetch(begin: int, end: int) -> bytes:
            headers = {**self._hub.utils.build_hf_headers(), "range": f"bytes={begin}-{end - 1}"}
            with _convert_errors(url):
                reply = self._hub.utils.http_backoff("GET", address, headers=headers, timeout=30)
                self._hub.utils.hf_raise_for_status(reply)
            if reply.status_code != 206:
                raise OSError(
                    f"{url}: the Hub did not return a range of the file ({reply.status_code})"
                )
            return bytes(reply.content)

        return _limit_time(fetch, timeout)

    def commit(self, files: Mapping[str, PathLike], url: str) -> None:
        """Adds local files below a folder by one commit; keys are the names in the folder."""
        (kind, name, revision), folder = repository, _ = self._parse(url)
        add = self._hub.CommitOperationAdd
        operations = [
            add(f"{folder}/{path}".strip("/"), os.fspath(file)) for path, file in files.items()
        ]
        options = {"commit_message": "Add a dataset", "repo_type": kind, "revision": revision}
        with _convert_errors(url):
            self._hub.HfApi().create_commit(name, operations, **options)
        _commits.pop(repository, None)

    def upload(self, file: BinaryIO, url: str) -> None:
        raise read_only(url)

    def copy(self, source: str, target: str) -> bool:
        raise read_only(target)

    def remove(self, url: str) -> None:
        raise read_only(url)


def read_only(url: str) -> OSError:
    """Returns the error for writing single files to the Hub."""
    remedy = "export full datasets there, or write to a local folder and run `hf upload`"
    return io.UnsupportedOperation(f"{url}: hf:// is read-only: {remedy}")


# The kinds of errors by name of the class, so that no package is imported for its classes.
_NAMES: dict[type[OSError], str] = {
    FileNotFoundError: "EntryNotFoundError NoSuchBucket NoSuchKey NotFoundError "
    "RepositoryNotFoundError RevisionNotFoundError",
    PermissionError: "PermissionDeniedError UnauthenticatedError NoCredentialsError "
    "PartialCredentialsError DefaultCredentialsError RefreshError ClientAuthenticationError",
    FileExistsError: "AlreadyExistsError",
    ConnectionError: "AbortedError DeadlineExceededError UnavailableError ClientConnectionError "
    "ClientConnectorError EndpointConnectionError TransportError TimeoutError",
}
_ERROR_OF_CODE: dict[str, type[OSError]] = {
    "401": PermissionError,
    "403": PermissionError,
    "404": FileNotFoundError,
}


@contextlib.contextmanager
def _convert_errors(url: str) -> Iterator[None]:
    """Converts errors of clients to an `OSError` of the same kind, with the name of the object."""
    try:
        yield
    except (TypeError, AttributeError, NameError):  # Programming errors are not converted.
        raise
    except Exception as error:
        raise _create_os_error(url, error) from error


def _create_os_error(url: str, error: Exception) -> OSError:
    text = " ".join(str(error).split())
    reason = f"{type(error).__name__}: {text}"[:400]
    names = {cls.__name__ for cls in type(error).__mro__}
    code = str(getattr(error, "code", ""))
    kinds = (kind for kind in _NAMES if isinstance(error, kind) or names & {*_NAMES[kind].split()})
    kind = next(kinds, None) or _ERROR_OF_CODE.get(code, OSError)
    if kind is PermissionError:
        log_in = _LOGIN_HINTS.get(scheme_of(url), "log in")
        return PermissionError(f"{url}: access was refused; {log_in} ({reason})")
    if kind is FileNotFoundError:
        subject = "object"
        if scheme_of(url) == "hf":
            subject += f", or it is private: {_LOGIN_HINTS['hf']}"
        if "bucket does not exist" in text or "NoSuchBucket" in text:
            subject = f"bucket {url.split('/')[2]!r}; check its name, or create it first"
        return FileNotFoundError(f"{url}: no such {subject}")
    if kind is ConnectionError:
        return ConnectionError(f"{url}: the store cannot be reached ({reason})")
    return kind(f"{url}: {reason}")
