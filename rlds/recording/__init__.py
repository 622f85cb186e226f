"""Backends of EnvLogger that record directly to datasets of other formats, with crash recovery.

from rlds.recording import LeRobotBackendWriter

env = envlogger.EnvLogger(env, backend=LeRobotBackendWriter, data_directory="my_robot", fps=30)
"""

from rlds_ecosystem.lazy import lazy_package as _lazy_package

__getattr__, __dir__, __all__ = _lazy_package(__name__, __file__)
