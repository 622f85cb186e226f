"""Settings that all tests share."""

import gc
import os
import signal
from typing import Any

# Each worker has a core; the threads of NumPy's BLAS would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from hypothesis import settings

# The second pass repeats the tests of the first one, with fewer examples.
is_second_pass = os.environ.get("RIEGELI_IMPLEMENTATION") == "python"
# `make test-all` tries many new examples each time; `make test` always the same few.
is_thorough = "FEW_EXAMPLES" in os.environ
# Machines are shared, so the time of an example means nothing: there are no deadlines.
settings.register_profile(
    "default",
    deadline=None,
    max_examples=10 if is_second_pass else 50 if is_thorough else 20,
    derandomize=not is_thorough,
    print_blob=True,
)
settings.load_profile("default")

# A background job of a shell ignores it, and processes started by tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Modules and tests stay; garbage collection among them takes a third of the time to load them.
gc.disable()


def pytest_collection_finish() -> None:
    """Excludes TensorFlow's modules from garbage collection, which saves a sixth of the time."""
    gc.freeze()
    gc.set_threshold(1_000_000, 50, 50)
    gc.enable()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Writes the failed tests to the file FAILED_TESTS, which `make test` shows at its end."""
    path = os.environ.get("FAILED_TESTS")
    if path and "PYTEST_XDIST_WORKER" not in os.environ:
        reports = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
        with open(path, "a") as file:
            file.writelines(f"{report.nodeid}\n" for report in reports)
