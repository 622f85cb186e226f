"""Every source there is: killed, resumed, and read by a pipeline, it gives the same bytes.

This file is also the program that is killed: a process that has loaded all there is to load starts
one child after the other by `fork`, which converts, and dies at some access to a file.
"""

import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import traceback
from pathlib import Path

import conversions
import dm_env
import numpy as np
import pytest
import raw_agibot
import raw_aloha
import raw_atari_dqn_replay
import raw_bags
import raw_calvin
import raw_d3rlpy
import raw_d4rl
import raw_d4rl_pybullet
import raw_droid
import raw_imitation
import raw_lerobot
import raw_maniskill
import raw_minari
import raw_npz
import raw_ogbench
import raw_rlds_creator
import raw_rlu
import raw_robomimic
import raw_robomind
import raw_sb3
import raw_webdataset
import raw_zarr
import tensorflow_datasets as tfds

import envlogger
import tfds_builders
from rlds.formats.agibot.source import AgiBotSource
from rlds.formats.aloha.source import AlohaSource
from rlds.formats.atari_dqn_replay.source import AtariDqnReplaySource
from rlds.formats.bags.source import McapSource, RosbagSource
from rlds.formats.calvin.source import CalvinSource
from rlds.formats.creator.source import RldsCreatorSource
from rlds.formats.d3rlpy.source import D3rlpySource
from rlds.formats.d4rl.pybullet import D4rlPybulletSource
from rlds.formats.d4rl.source import D4rlSource
from rlds.formats.droid.source import DroidSource
from rlds.formats.imitation.source import ImitationSource
from rlds.formats.lerobot.source import LeRobotSource
from rlds.formats.maniskill.source import ManiSkillSource
from rlds.formats.minari.source import MinariSource
from rlds.formats.npz.source import NpzSource
from rlds.formats.ogbench.source import OGBenchSource
from rlds.formats.rlu.atari import RluAtariSource
from rlds.formats.rlu.atari_transitions import RluAtariTransitionsSource
from rlds.formats.rlu.bsuite import RluBsuiteSource
from rlds.formats.rlu.control_suite import RluControlSuiteSource
from rlds.formats.rlu.control_suite_windows import RluControlSuiteWindowsSource
from rlds.formats.rlu.dmlab import RluDmlabSource
from rlds.formats.rlu.locomotion import RluLocomotionSource
from rlds.formats.rlu.locomotion_windows import RluLocomotionWindowsSource
from rlds.formats.rlu.rwrl import RluRwrlSource
from rlds.formats.robomimic.source import RobomimicSource
from rlds.formats.robomind.source import RoboMindSource
from rlds.formats.sb3.source import Sb3Source
from rlds.formats.tfds.source import FolderSource
from rlds.formats.webdataset.source import WebdatasetSource
from rlds.formats.zarr_buffers.source import ZarrSource
from rlds.sources.source import Source

pytestmark = pytest.mark.slow

MAX_KILLS = 6


class Countdown(dm_env.Environment):
    """An environment whose episodes get longer."""

    length = left = 0

    def reset(self):
        self.length += 1
        self.left = self.length
        return dm_env.restart(np.float32(self.left))

    def step(self, action):
        self.left -= 1
        end = dm_env.termination if self.length % 2 else dm_env.truncation
        reward, observation = float(action), np.float32(self.left)
        return dm_env.transition(reward, observation) if self.left else end(reward, observation)

    def observation_spec(self):
        return dm_env.specs.Array((), np.float32)

    def action_spec(self):
        return dm_env.specs.DiscreteArray(3)


def d4rl(directory):
    return D4rlSource(raw_d4rl.write_family(directory, "halfcheetah_medium_replay-v1"))


def d4rl_pybullet(directory):
    path = directory / "hopper-bullet-mixed-v0.hdf5"
    return D4rlPybulletSource(raw_d4rl_pybullet.write_pybullet(path, [4, 1000, 3, 7], cut=True))


def minari(directory):
    os.environ["MINARI_DATASETS_PATH"] = str(directory)
    return MinariSource(raw_minari.write_buffers("all-v1"))


def aloha(directory):
    return AlohaSource(raw_aloha.write_folder(directory, images="padded"))


def maniskill(directory):
    return ManiSkillSource(raw_maniskill.write(directory / "t.h5"))


def droid(directory):
    raw_droid.write_folder(directory)
    return DroidSource(directory)


def agibot(directory):
    raw_agibot.write_sound(directory)
    return AgiBotSource(directory)


def robomind(directory):
    return RoboMindSource(raw_robomind.write_folder(directory))


def mcap(directory):
    for number in range(3):
        rows = raw_bags.sample(4 + number, seed=number)
        raw_bags.write_mcap(directory / f"{number}.mcap", rows)
    return McapSource(directory, bag_config=raw_bags.CONFIG)


def rosbag(directory):
    for number in range(3):
        rows = raw_bags.sample(4 + number, seed=number, ros1=True)
        raw_bags.write_ros1(directory / f"{number}.bag", rows)
    return RosbagSource(directory, bag_config=raw_bags.CONFIG)


def npz(directory):
    raw_npz.write_folder(directory, raw_npz.sample())
    return NpzSource(directory)


def ogbench(directory):
    return OGBenchSource(raw_ogbench.write(directory))


def calvin(directory):
    return CalvinSource(raw_calvin.write(directory))


def lerobot(directory):
    codecs = {raw_lerobot.TOP: "h264"}
    return LeRobotSource(raw_lerobot.write_v3(directory, codecs=codecs))


def webdataset(directory):
    return WebdatasetSource(raw_webdataset.write_episodes(directory))


def d3rlpy(directory):
    return D3rlpySource(raw_d3rlpy.write(directory / "a.h5"))


def imitation(directory):
    return ImitationSource(raw_imitation.write(directory))


def sb3(directory):
    return Sb3Source(raw_sb3.write(directory / "a.pkl"))


def zarr(directory):
    return ZarrSource(raw_zarr.write_umi(directory / "dataset.zarr.zip"))


def robomimic(directory):
    raw_robomimic.libero_folder(directory / "libero")
    return RobomimicSource(directory / "libero", alignment="shift")


def rlu_atari(directory):
    raw_rlu.write_files(directory, "run_1", raw_rlu.atari_episodes(shape=(6, 4)))
    return RluAtariSource(directory)


def rlu_dmlab(directory):
    raw_rlu.write_files(directory, "tfrecord", raw_rlu.dmlab_episodes(shape=(6, 4)))
    return RluDmlabSource(directory)


def rlu_rwrl(directory):
    raw_rlu.write_files(directory, "episodes.tfrecord", raw_rlu.rwrl_episodes(), compression="")
    return RluRwrlSource(directory)


def rlu_control_suite(directory):
    raw_rlu.write_files(directory, "train", raw_rlu.control_suite_episodes())
    return RluControlSuiteSource(directory)


def rlu_locomotion(directory):
    raw_rlu.write_files(directory, "train", raw_rlu.locomotion_episodes())
    return RluLocomotionSource(directory)


def rlu_atari_transitions(directory):
    raw_rlu.write_files(directory, "run_1", raw_rlu.atari_transitions(shape=(6, 4)))
    return RluAtariTransitionsSource(directory)


def rlu_control_suite_windows(directory):
    raw_rlu.write_files(directory, "train", raw_rlu.control_suite_windows())
    return RluControlSuiteWindowsSource(directory)


def rlu_locomotion_windows(directory):
    raw_rlu.write_files(directory, "train", raw_rlu.locomotion_windows())
    return RluLocomotionWindowsSource(directory)


def rlu_bsuite(directory):
    raw_rlu.write_files(directory, "0_full", raw_rlu.bsuite_windows())
    return RluBsuiteSource(directory)


def atari_dqn_replay(directory):
    episodes = [
        raw_atari_dqn_replay.episode(length, terminal=length % 2 == 0, seed=length)
        for length in (5, 8, 6, 11)
    ]
    for run in ("1", "2"):
        rows = raw_atari_dqn_replay.record(episodes)
        raw_atari_dqn_replay.write_run(directory / "Pong" / run / "replay_logs", rows, capacity=20)
    return AtariDqnReplaySource(directory)


def rlds_creator(directory):
    return RldsCreatorSource(
        raw_rlds_creator.write_zip(directory / "download.zip", raw_rlds_creator.sample())
    )


def folder(directory):
    copied = tfds_builders.convert(
        d4rl(directory),
        name="copied",
        data_dir=directory,
        download_config=tfds.download.DownloadConfig(num_shards=3),
    )
    return FolderSource(copied.data_path)


def logs(directory):
    with envlogger.EnvLogger(Countdown(), data_directory=directory) as env:
        for _ in range(6):
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(1)
    return tfds_builders.EnvLoggerSource(directory)


SOURCES = {
    write.__name__: write
    for write in (
        d4rl,
        d4rl_pybullet,
        minari,
        aloha,
        maniskill,
        droid,
        agibot,
        robomind,
        mcap,
        rosbag,
        npz,
        sb3,
        imitation,
        d3rlpy,
        ogbench,
        calvin,
        lerobot,
        webdataset,
        zarr,
        robomimic,
        rlu_atari,
        rlu_dmlab,
        rlu_rwrl,
        rlu_control_suite,
        rlu_locomotion,
        rlu_atari_transitions,
        rlu_control_suite_windows,
        rlu_locomotion_windows,
        rlu_bsuite,
        atari_dqn_replay,
        rlds_creator,
        folder,
        logs,
    )
}


@pytest.fixture(scope="module")
def sources(request, tmp_path_factory):
    """The sources of the tests that were chosen."""
    items = [item for item in request.session.items if item.path == Path(__file__)]
    chosen = {item.callspec.params["name"] for item in items}
    return {
        name: SOURCES[name](tmp_path_factory.mktemp(name)) for name in SOURCES if name in chosen
    }


@pytest.fixture(scope="module")
def killed(sources, tmp_path_factory):
    """For each source, what became of conversions that were killed."""
    directory = tmp_path_factory.mktemp("killed")
    (directory / "sources").write_bytes(pickle.dumps(sources))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, __file__, str(directory)], env=environment, check=True)
    return json.loads((directory / "results").read_text())


@pytest.mark.parametrize("name", SOURCES)
def test_killed_and_resumed(killed, name):
    result = killed[name]
    assert result["num_kills"]
    assert result["contents"] == result["expected"]
    assert result["left"] == ["1.0.0"]


@pytest.mark.parametrize("name", SOURCES)
def test_goes_on_after_any_episode(sources, name):
    source = sources[name]
    for split in source.splits:
        for part in source.parts(split):
            whole = [pickle.dumps(episode) for episode in source.episodes(split, part)]
            for index, episode in enumerate(map(pickle.loads, whole)):
                rest = source.episodes(split, part, episode.key)
                assert [digest(e) for e in rest] == [
                    digest(pickle.loads(e)) for e in whole[index + 1 :]
                ]


def digest(episode):
    """An episode without what is only for the progress bar, in a form that can be compared."""
    described = dict(vars(episode), fraction=None)
    return conversions.to_lists(described)


@pytest.mark.filterwarnings("ignore")  # Of Beam, in a version that others decide.
@pytest.mark.parametrize("name", SOURCES)
def test_pipeline_gives_the_same_bytes(sources, killed, tmp_path, name):
    made = tfds_builders.convert(
        sources[name],
        name="dataset",
        data_dir=tmp_path,
        download_config=tfds.download.DownloadConfig(
            beam_runner="DirectRunner", beam_options=["--direct_running_mode=in_memory"]
        ),
    )
    assert conversions.contents(made.data_path) == killed[name]["expected"]


# --- The program that is killed ------------------------------------------------------------------


def main(directory: Path) -> None:
    sources: dict[str, Source] = pickle.loads((directory / "sources").read_bytes())
    results = {}
    for name, source in sources.items():
        whole, data_dir = directory / name / "whole", directory / name / "killed"
        num_accesses = in_child(source, whole, None)[1]
        random.seed(name)
        num_kills = 0
        # Until it was finished, or died after the last thing that it had to do.
        while not (data_dir / "dataset" / "1.0.0").exists() or staged(data_dir):
            may_die = num_kills < MAX_KILLS
            accesses = random.randrange(num_accesses) if may_die else None
            num_kills += in_child(source, data_dir, accesses)[0] == -signal.SIGKILL
        results[name] = {
            "num_kills": num_kills,
            "expected": conversions.contents(whole / "dataset" / "1.0.0"),
            "contents": conversions.contents(data_dir / "dataset" / "1.0.0"),
            "left": sorted(path.name for path in (data_dir / "dataset").iterdir()),
        }
        shutil.rmtree(directory / name)
    (directory / "results").write_text(json.dumps(results))


def staged(data_dir: Path) -> bool:
    return (data_dir / "dataset" / ".staging-1.0.0").exists()


def in_child(source: Source, data_dir: Path, accesses: int | None) -> tuple[int, int]:
    """Converts in a child, which dies after some accesses to files of the dataset.

    Returns:
      How it ended, as `subprocess` says it, and how many accesses there were.
    """
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            num_accesses = die_after(data_dir, accesses)
            tfds_builders.convert(source, name="dataset", data_dir=data_dir)
            os.write(send, str(num_accesses[0]).encode())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(send)
    with open(receive, "rb") as stream:
        seen = stream.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, -signal.SIGKILL):
        raise RuntimeError(f"a conversion ended with {status}")
    return status, int(seen or 0)


def die_after(directory: Path, accesses: int | None) -> list[int]:
    """Kills this process at an access to a file of a directory; returns how many there were."""
    num_accesses = [0]

    def count(event, arguments):
        if event.split(".")[0] not in ("open", "os", "shutil", "tempfile"):
            return
        if any(isinstance(a, str) and a.startswith(str(directory)) for a in arguments):
            if num_accesses[0] == accesses:
                os.kill(os.getpid(), signal.SIGKILL)
            num_accesses[0] += 1

    sys.addaudithook(count)
    return num_accesses


if __name__ == "__main__":
    main(Path(sys.argv[1]))
