from rlds.formats.lerobot.recorder import LeRobotBackendWriter as LeRobotBackendWriter
from rlds.formats.lerobot.recovering import Recovered as Recovered
from rlds.formats.lerobot.recovering import recover as recover
