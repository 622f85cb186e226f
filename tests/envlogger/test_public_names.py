"""The names that users of EnvLogger import."""

import pytest

import envlogger
from envlogger import errors


def test_the_public_names_are_complete():
    assert set(envlogger.__all__) == {
        *("BackendType", "Damage", "Data", "Datum", "EnvLogger", "GymnasiumLogger", "Reader"),
        *("RecoveryReport", "RiegeliBackendWriter", "Scheduler", "StepData", "StreamRecorder"),
        *("Video", "recover"),
    }


@pytest.mark.parametrize(
    "name",
    [
        *("backend_type", "environment_logger", "reader", "riegeli_backend_writer", "schedulers"),
        *("step_data", "storage_pb2"),
    ],
)
def test_modules_are_attributes_of_the_package(name):
    assert getattr(envlogger, name).__name__.endswith(name)


def test_module_paths_of_the_published_package_can_be_imported():
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


def test_errors_are_runtime_errors_as_upstream():
    for name in errors.__all__:
        if name != "storage_errors":
            assert issubclass(getattr(errors, name), RuntimeError)
    assert issubclass(errors.UnsupportedTypeError, TypeError)
    assert issubclass(errors.UnsupportedValueError, ValueError)
    assert not issubclass(errors.DamagedDataError, TypeError | ValueError)
