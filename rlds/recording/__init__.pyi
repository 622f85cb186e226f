from rlds.recording.lerobot import LeRobotBackendWriter as LeRobotBackendWriter
from rlds.recording.recovering import Recovered as Recovered
from rlds.recording.recovering import recover as recover
