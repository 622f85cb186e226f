"""Recording to an object store, which is one in memory behind `epath` and `fsspec`."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import envlogger

BUCKET = """
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem

    class Bucket(MemoryFileSystem):
        protocol = ("s3",)
        store = {}
        pseudo_dirs = [""]

        @classmethod
        def _strip_protocol(cls, path):
            return MemoryFileSystem._strip_protocol(str(path).replace("s3://", "memory://"))

    fsspec.register_implementation("s3", Bucket, clobber=True)

    import pytest
    from etils import epath

    import envlogger
    from envlogger.errors import StorageError
    from envlogger.testing.catch_env import Catch

    def play(env, num_episodes):
        for _ in range(num_episodes):
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(1)

    fsspec.filesystem("s3").mkdir("s3://bucket")
    """


def run(code: str, tmp_path: Path) -> None:
    # In a process of its own, as the store belongs to the process. TensorFlow has its own client.
    script = textwrap.dedent(BUCKET) + textwrap.dedent(code)
    environment = {
        **os.environ,
        "EPATH_USE_TF": "false",
        "PYTHONPATH": str(Path(envlogger.__file__).parents[1]),
    }
    process = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []  # Nothing went to a local directory of that name.


def test_recordings_are_written_to_and_read_from_an_object_store(tmp_path):
    run(
        """
        with envlogger.EnvLogger(
            Catch(),
            data_directory="s3://bucket/logs",
            max_episodes_per_file=2,
            metadata={"robot": "a"},
            episode_fn=lambda timestep, action, env: {"done": timestep.last()},
        ) as env:
            play(env, 2)
            env.flush()
            play(env, 3)
            env.discard_episode()

        with envlogger.Reader(epath.Path("s3://bucket/logs")) as reader:
            assert reader.metadata()["robot"] == "a"
            assert [len(episode) for episode in reader.episodes] == [10] * 4
            assert list(reader.episode_metadata()) == [{"done": True}] * 4
            assert reader.columns(3)["action"].tolist() == [0] + [1] * 9
            assert reader.damage() == []

        with envlogger.EnvLogger(
            Catch(), data_directory="s3://bucket/logs", metadata={"robot": "a"}
        ) as env:
            play(env, 1)
        with envlogger.Reader("s3://bucket/logs") as reader:
            assert len(reader.episodes) == 5
        with pytest.raises(StorageError, match="s3://bucket/nothing holds no recording"):
            envlogger.Reader("s3://bucket/nothing")
        """,
        tmp_path,
    )
