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

# The modules are attributes of this package too, because code that uses EnvLogger finds them here.
from envlogger import environment_logger as environment_logger
from envlogger import reader as reader
from envlogger import step_data as step_data
from envlogger.backends import backend_type as backend_type
from envlogger.backends import riegeli_backend_writer as riegeli_backend_writer
from envlogger.backends import schedulers as schedulers
from envlogger.backends.backend_type import BackendType
from envlogger.backends.riegeli_backend_writer import RiegeliBackendWriter
from envlogger.backends.schedulers import Scheduler
from envlogger.damage import Damage
from envlogger.environment_logger import EnvLogger
from envlogger.proto import storage_pb2 as storage_pb2
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

if not TYPE_CHECKING:  # A type checker would believe that every name is there.

    def __getattr__(name):
        from rlds_ecosystem import package_attribute

        return package_attribute(__name__, name)
