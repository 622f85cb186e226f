"""Distribution of the tasks of an audit to other machines by Apache Beam."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rlds.conversion.beam import check_shared_folder, run_in_pipeline, suppress_errors
from rlds_ecosystem.files.whole_files import local_target, write_atomically

__all__ = ["compute_in_pipeline"]


@contextlib.contextmanager
def compute_in_pipeline(
    work: Callable[[range], Any],
    tasks: Sequence[range],
    pipeline: tuple[Any, Any],
    draft: str | os.PathLike[str] | None,
) -> Iterator[Callable[[range], Any]]:
    """Runs tasks in a pipeline, and yields a function that returns their results.

    Args:
      work: The picklable function that computes the result of a task.
      tasks: The tasks.
      pipeline: The runner of Apache Beam, and options for it.
      draft: The parent of the folder of results, which is removed at the end of the context; the
        folder for temporary files if None.

    Raises:
      ImportError: Apache Beam is not installed.
      ValueError: The folder is in an object store, or a worker does not see it.
    """
    parent = None if draft is None else local_target("audit", draft).parent
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    # Only this user can write to the folder, so that unpickling the results is safe.
    with tempfile.TemporaryDirectory(
        prefix=".audit.", dir=parent, ignore_cleanup_errors=True
    ) as folder:
        worker = _StoringWorker(work, Path(folder))
        arguments = [(task,) for task in tasks]
        run_in_pipeline(functools.partial(suppress_errors, worker), arguments, *pipeline, "Measure")
        yield worker


@dataclasses.dataclass(frozen=True)
class _StoringWorker:
    """Runs tasks, stores the results in a folder, and reads stored results."""

    work: Callable[[range], Any]
    folder: Path

    def __call__(self, task: range) -> Any:
        check_shared_folder(self.folder, "results")
        result_file = self.folder / str(task.start)
        if result_file.exists():
            return pickle.loads(result_file.read_bytes())
        result = self.work(task)
        write_atomically(result_file, pickle.dumps(result), durable=False)
        return result
