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

from importlib.util import find_spec as _find_spec

from rlds_ecosystem.lazy import lazy_package as _lazy_package

__getattr__, __dir__, __all__ = _lazy_package(__name__, __file__)
if _find_spec("gymnasium") is None:  # The names of `import *` and `help`.
    __all__.remove("GymnasiumLogger")
