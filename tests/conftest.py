"""Settings that all tests share."""

import gc
import os
import signal
from typing import Any

# Each worker has a core; the threads of NumPy's BLAS would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from hypothesis import settings

# The second pass repeats what the first one, with the compiled core, has tried with more.
is_second_pass = os.environ.get("RIEGELI_IMPLEMENTATION") == "python"
# `make test-all` tries many examples, other ones each time; `make test` always the same few.
is_thorough = "FEW_EXAMPLES" in os.environ
# The machines that run this are shared: how long an example takes says nothing.
settings.register_profile(
    "default",
    deadline=None,
    max_examples=10 if is_second_pass else 50 if is_thorough else 20,
    derandomize=not is_thorough,
    print_blob=True,
)
settings.load_profile("default")

# In the background of a shell it is ignored, and processes that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Modules and tests stay; to look for garbage among them takes a third of the time to load them.
gc.disable()


def pytest_collection_finish() -> None:
    """Keeps the garbage collector from TensorFlow's modules: a sixth of the time goes there."""
    gc.freeze()
    gc.set_threshold(1_000_000, 50, 50)
    gc.enable()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Writes the tests that failed to the file FAILED_TESTS, which `make test` shows at its end."""
    path = os.environ.get("FAILED_TESTS")
    if path and "PYTEST_XDIST_WORKER" not in os.environ:
        reports = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
        with open(path, "a") as file:
            file.writelines(f"{report.nodeid}\n" for report in reports)
