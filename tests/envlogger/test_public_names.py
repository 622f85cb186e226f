"""The names that users of EnvLogger import, and what importing them costs."""

import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import envlogger
from envlogger import errors

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(envlogger.__path__, prefix="envlogger.")
)


def test_listed_names_are_there():
    assert set(envlogger.__all__) == {
        *("BackendType", "Data", "Datum", "EnvLogger", "Reader", "RiegeliBackendWriter"),
        *("Scheduler", "StepData"),
    }
    for name in envlogger.__all__:
        assert getattr(envlogger, name) is not None


@pytest.mark.parametrize(
    "name",
    [
        *("backend_type", "environment_logger", "reader", "riegeli_backend_writer", "schedulers"),
        *("step_data", "storage_pb2"),
    ],
)
def test_modules_are_attributes_of_the_package(name):
    assert getattr(envlogger, name).__name__.endswith(name)


def test_modules_of_upstream():
    from envlogger.backends.backend_reader import BackendReader
    from envlogger.backends.backend_writer import BackendWriter
    from envlogger.backends.in_memory_backend import InMemoryBackendReader, InMemoryBackendWriter
    from envlogger.backends.python.episode_info import EpisodeInfo
    from envlogger.backends.riegeli_backend_reader import RiegeliBackendReader
    from envlogger.environment_wrapper import EnvironmentWrapper
    from envlogger.testing.catch_env import Catch

    assert issubclass(RiegeliBackendReader, BackendReader)
    assert issubclass(InMemoryBackendReader, BackendReader)
    assert issubclass(InMemoryBackendWriter, BackendWriter)
    assert issubclass(envlogger.EnvLogger, EnvironmentWrapper)
    assert EpisodeInfo().num_steps == 0
    assert Catch().action_spec().num_values == 3


@pytest.mark.parametrize("name", MODULES)
def test_every_module_lists_names_that_it_has(name):
    module = importlib.import_module(name)
    for public in getattr(module, "__all__", []):
        assert hasattr(module, public)


@pytest.mark.parametrize("name", ["envlogger", *MODULES])
def test_examples_in_docstrings_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_importing_does_not_load_tensorflow():
    modules = [name for name in MODULES if "tfds" not in name]
    code = f"import sys, {', '.join(modules)}; print('tensorflow' in sys.modules)"
    root = Path(envlogger.__file__).parents[1]
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root
    )
    assert run.stdout == "False\n"


def test_errors_are_runtime_errors_as_upstream():
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), RuntimeError)
    assert issubclass(errors.UnsupportedTypeError, TypeError)
    assert issubclass(errors.UnsupportedValueError, ValueError)
    assert not issubclass(errors.DamagedDataError, TypeError | ValueError)
