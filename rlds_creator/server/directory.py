"""The data directory, with the logs of episodes, the downloads and the salt of pseudonyms."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from rlds_creator.identifiers import check_identifier
from rlds_ecosystem.files import whole_files

__all__ = ["DataDirectory"]

logger = logging.getLogger(__name__)

# The time for workers of a killed server to exit.
_WORKER_EXIT_TIMEOUT_S = 20.0


class DataDirectory:
    """The data directory of a server; created if it does not exist.

    Attributes:
      path: The path of the directory.
      episodes: The directory of the logs, each in a directory named after its episode.
      exports: The directory of the downloads, each in a directory of its own.

    Raises:
      NotADirectoryError: The path is a file.
      OSError: The directory cannot be created or read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        if self.path.exists() and not self.path.is_dir():
            raise NotADirectoryError(f"{self.path} is a file. Give a directory, or a new path.")
        self.episodes = self.path / "episodes"
        self.exports = self.path / "exports"
        for directory in (self.path, self.episodes, self.exports):
            directory.mkdir(parents=True, exist_ok=True)
        self._salt = self._read_salt()

    @property
    def database(self) -> str:
        """The URL of the database in the directory."""
        return f"sqlite:///{self.path / 'creator.sqlite'}"

    @contextlib.contextmanager
    def server_lock(self) -> Iterator[None]:
        """Locks the directory for this server.

        Raises:
          RuntimeError: Another server uses the directory.
        """
        with open(self.path / "lock", "ab") as file:
            if not whole_files.lock(file.fileno(), wait=False):
                raise RuntimeError(f"{self.path} is in use by another `rlds create`.")
            yield

    @contextlib.contextmanager
    def worker_lock(self) -> Iterator[int]:
        """Yields a locked file descriptor, which all workers inherit and keep open.

        Workers of a crashed server still complete their logs, so this waits for their end.
        """
        deadline = time.monotonic() + _WORKER_EXIT_TIMEOUT_S
        with open(self.path / "workers.lock", "ab") as file:
            while not whole_files.lock(file.fileno(), wait=False):
                if time.monotonic() > deadline:
                    logger.warning("processes of an earlier server are still running")
                    break
                time.sleep(0.05)
            yield file.fileno()

    def episode(self, identifier: str) -> Path:
        """Returns the directory of the log of an episode."""
        return self.episodes / check_identifier(identifier)

    def export(self, identifier: str) -> Path:
        """Returns the directory of a download."""
        return self.exports / check_identifier(identifier)

    def agent_id(self, person: str, study: str) -> str:
        """Returns the pseudonym of a person in the data of a study.

        All episodes of the person in the study have the same pseudonym, which does not identify the
        person without the salt.
        """
        content = self._salt + person.encode() + b"\0" + study.encode()
        return hashlib.sha256(content).hexdigest()[:32]

    @property
    def name(self) -> str:
        """The pseudonym of this directory, which does not reveal the path."""
        return hashlib.sha256(self._salt + b"name").hexdigest()[:8]

    def _read_salt(self) -> bytes:
        path = self.path / "salt"
        if not path.exists():
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:
                file.write(secrets.token_bytes(32))
                file.flush()
                os.fsync(file.fileno())
        salt = path.read_bytes()
        if len(salt) < 32:
            raise RuntimeError(
                f"{path} is truncated. The pseudonyms in the data depend on it. Restore it from a "
                "backup, or delete it; people then get new pseudonyms."
            )
        return salt
