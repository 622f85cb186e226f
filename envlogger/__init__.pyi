# Names without `as` are public modules.
from envlogger.backends import backend_type, riegeli_backend_writer, schedulers
from envlogger.backends.backend_type import BackendType as BackendType
from envlogger.backends.riegeli_backend_writer import RiegeliBackendWriter as RiegeliBackendWriter
from envlogger.backends.schedulers import Scheduler as Scheduler
from envlogger.damage import Damage as Damage
from envlogger.environment_logger import EnvLogger as EnvLogger
from envlogger.gymnasium_logger import GymnasiumLogger as GymnasiumLogger
from envlogger.proto import storage_pb2
from envlogger.proto.storage_pb2 import Data as Data
from envlogger.proto.storage_pb2 import Datum as Datum
from envlogger.reader import Reader as Reader
from envlogger.recovery import RecoveryReport as RecoveryReport
from envlogger.recovery import recover as recover
from envlogger.step_data import StepData as StepData
from envlogger.stream_recorder import StreamRecorder as StreamRecorder
from rlds_ecosystem.video_codec import Video as Video

__version__: str
