"""A builder for each raw format, with names in TFDS such as `rlds_agibot` and `rlds_aloha`."""

from __future__ import annotations

from rlds.formats.agibot.source import AgiBotSource
from rlds.formats.aloha.source import AlohaSource
from rlds.formats.bags.source import McapSource, RosbagSource
from rlds.formats.calvin.source import CalvinSource
from rlds.formats.d3rlpy.source import D3rlpySource
from rlds.formats.d4rl.pybullet import D4rlPybulletSource
from rlds.formats.droid.source import DroidSource
from rlds.formats.google_creator.source import RldsCreatorSource
from rlds.formats.imitation.source import ImitationSource
from rlds.formats.lerobot.source import LeRobotSource
from rlds.formats.maniskill.source import ManiSkillSource
from rlds.formats.minari.source import MinariSource
from rlds.formats.ogbench.source import OGBenchSource
from rlds.formats.robomimic.source import RobomimicSource
from rlds.formats.robomind.source import RoboMindSource
from rlds.formats.sb3.source import Sb3Source
from rlds.formats.tfds.source import FolderSource
from rlds.formats.webdataset.source import WebdatasetSource
from rlds.formats.zarr_buffers.source import ZarrSource
from tfds_builders.builder import SourceBuilder
from tfds_builders.logs import EnvLoggerSource


class RldsAgibot(SourceBuilder):
    """Episodes of AgiBot World.

    The `path` is the folder with `task_info`, `observations` and `proprio_stats`.
    """

    source_class = AgiBotSource


class RldsAloha(SourceBuilder):
    """A folder of `episode_0.hdf5`, ..., as ACT, ALOHA and Mobile ALOHA record them.

    The `path` is the folder: `tfds.load("rlds_aloha", builder_kwargs={"path": "data/open_lid"})`.
    """

    source_class = AlohaSource


class RldsCalvin(SourceBuilder):
    """A dataset of CALVIN, such as `task_D_D`, with its annotations.

    The `path` is the folder with `training` and `validation`.
    """

    source_class = CalvinSource


class RldsCreator(SourceBuilder):
    """Episodes that people recorded and annotated with RLDS Creator."""

    source_class = RldsCreatorSource


class RldsD3rlpy(SourceBuilder):
    """Any dataset that d3rlpy 2 dumped. The `path` is the file."""

    source_class = D3rlpySource


class RldsD4rlPybullet(SourceBuilder):
    """A dataset of d4rl-pybullet. The `path` is the file."""

    source_class = D4rlPybulletSource


class RldsDroid(SourceBuilder):
    """Raw episodes of DROID.

    The `path` is a folder with folders of episodes below it.
    """

    source_class = DroidSource


class RldsEnvlogger(SourceBuilder):
    """EnvLogger logs: the `path` is a directory (with all logs in it and below it), or an archive.

    See `EnvLoggerSource`, and `build_from_logs` for more options.
    """

    SHUFFLE = False
    EXTRACT = True
    source_class = EnvLoggerSource


class RldsFolder(SourceBuilder):
    """An RLDS dataset that TFDS stored, for a copy in other files.

    The `path` is its directory.
    """

    SHUFFLE = False
    source_class = FolderSource


class RldsImitation(SourceBuilder):
    """Any trajectories that imitation saved. The `path` is the folder."""

    source_class = ImitationSource


class RldsLerobot(SourceBuilder):
    """Any LeRobot dataset of version 2.0, 2.1 or 3.0, without loss.

    The `path` is the folder of the dataset. For several datasets in one `data_dir`, give each a
    config: `RldsLerobot(path="pusht", config=tfds.core.BuilderConfig(name="pusht"))`.
    """

    source_class = LeRobotSource


class RldsManiskill(SourceBuilder):
    """The trajectories of a ManiSkill 2 or 3 file and its JSON file, without loss.

    The `path` is the HDF5 file; the JSON file is next to it.
    """

    source_class = ManiSkillSource


class RldsMcap(SourceBuilder):
    """MCAP files, whose messages become steps by a configuration.

    The `path` is a file or a folder of files: `RldsMcap(path="runs", bag_config="arm.toml")`.
    Without a `bag_config`, a configuration is proposed.
    """

    source_class = McapSource


class RldsMinari(SourceBuilder):
    """Any Minari dataset, in any of its formats, without loss.

    The `path` is the directory of the dataset, or its identifier in Minari:
    `tfds.load("rlds_minari", builder_kwargs={"path": "mujoco/hopper/medium-v0"})`. For several
    datasets in one `data_dir`, give each a config: `RldsMinari(path="mujoco/hopper/medium-v0",
    config=tfds.core.BuilderConfig(name="hopper-medium"))`.
    """

    source_class = MinariSource


class RldsOgbench(SourceBuilder):
    """Any dataset of OGBench, with both its splits. The `path` is its file, or the folder."""

    source_class = OGBenchSource


class RldsRobomimic(SourceBuilder):
    """Demonstrations of robosuite, robomimic, MimicGen, LIBERO, RoboCasa or Isaac Lab.

    The `path` is an HDF5 file, or a folder of them, for one dataset: `tfds.load(
    "rlds_robomimic", builder_kwargs={"path": "lift/ph/low_dim.hdf5"})`.
    """

    source_class = RobomimicSource


class RldsRobomind(SourceBuilder):
    """Episodes of RoboMIND, of one embodiment.

    The `path` is the folder of the embodiment, or of a task.
    """

    source_class = RoboMindSource


class RldsRosbag(SourceBuilder):
    """Bags of ROS 1 and ROS 2, as `RldsMcap`."""

    source_class = RosbagSource


class RldsSb3(SourceBuilder):
    """The episodes in a replay buffer that `save_replay_buffer` wrote: the `path` is its file."""

    source_class = Sb3Source


class RldsWebdataset(SourceBuilder):
    """Episodes in shards of WebDataset.

    The `path` is a folder with tar files, or one of them. The options `group` and `fields`
    define a sample and its fields.
    """

    source_class = WebdatasetSource


class RldsZarr(SourceBuilder):
    """Any replay buffer in Zarr v2, of Diffusion Policy or UMI, without loss.

    The `path` is the folder or the `.zarr.zip` archive. For several datasets in one
    `data_dir`, give each a config: `RldsZarr(path="pusht.zarr", config=tfds.core.BuilderConfig(
    name="pusht"))`.
    """

    source_class = ZarrSource


__all__ = [name for name in dir() if getattr(globals()[name], "__module__", "") == __name__]
__all__ = [name for name in __all__ if not name.startswith("_")]
