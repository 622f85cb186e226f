"""Records the interactions of agents with dm_env environments, and reads them back.

>>> import tempfile
>>> import envlogger
>>> from envlogger.testing.catch_env import Catch
>>> with tempfile.TemporaryDirectory() as data_directory:
...     with envlogger.EnvLogger(Catch(), data_directory=data_directory) as env:
...         timestep = env.reset()
...         while not timestep.last():
...             timestep = env.step(1)
...     with envlogger.Reader(data_directory) as reader:
...         [len(episode) for episode in reader.episodes]
[10]
"""

from typing import TYPE_CHECKING

from rlds_ecosystem.lazy import lazy_package as _lazy_package

if TYPE_CHECKING:
    from envlogger.backends.backend_type import BackendType
    from envlogger.backends.riegeli_backend_writer import RiegeliBackendWriter
    from envlogger.backends.schedulers import Scheduler
    from envlogger.damage import Damage
    from envlogger.environment_logger import EnvLogger
    from envlogger.proto.storage_pb2 import Data, Datum
    from envlogger.reader import Reader
    from envlogger.recovery import RecoveryReport, recover
    from envlogger.step_data import StepData

__all__ = [
    "BackendType",
    "Damage",
    "Data",
    "Datum",
    "EnvLogger",
    "Reader",
    "RecoveryReport",
    "RiegeliBackendWriter",
    "Scheduler",
    "StepData",
    "recover",
]

__version__: str

# Loaded on first use: a command that only needs an error or a name of a file starts in no time. The
# modules are attributes too, because code that uses EnvLogger finds some of them here.
_HOMES = {
    "envlogger.backends": ["backend_type", "riegeli_backend_writer", "schedulers"],
    "envlogger.proto": ["storage_pb2"],
    "envlogger.backends.backend_type": ["BackendType"],
    "envlogger.backends.riegeli_backend_writer": ["RiegeliBackendWriter"],
    "envlogger.backends.schedulers": ["Scheduler"],
    "envlogger.damage": ["Damage"],
    "envlogger.environment_logger": ["EnvLogger"],
    "envlogger.proto.storage_pb2": ["Data", "Datum"],
    "envlogger.reader": ["Reader"],
    "envlogger.recovery": ["RecoveryReport", "recover"],
    "envlogger.step_data": ["StepData"],
}

if not TYPE_CHECKING:  # A type checker would believe that every name is there.
    __getattr__, __dir__ = _lazy_package(__name__, __all__, _HOMES)
