"""Makes the golden recordings, with the published envlogger 1.2 (which has Google's C++ Riegeli).

    python make_envlogger.py DIRECTORY

The files in `envlogger_1_2/` are its output and never change: this project must always read them.
Each is one recording of `episodes.py`, in two shards of three episodes at most. Directories
are named after the writer options; the shards, which are named after the time, are renamed.
"""

import pathlib
import sys

import episodes

import envlogger
from envlogger.backends import riegeli_backend_writer
from envlogger.converters import spec_codec

OPTIONS = ["brotli:6", "zstd:3", "uncompressed", "transpose,brotli:6"]


def make(directory: pathlib.Path, options: str) -> None:
    directory.mkdir(parents=True)
    metadata = dict(
        episodes.METADATA,
        environment_specs=spec_codec.encode_environment_specs(episodes.Specs()),
    )
    writer = riegeli_backend_writer.RiegeliBackendWriter(
        data_directory=str(directory),
        max_episodes_per_file=3,
        writer_options=options,
        metadata=metadata,
    )
    episodes.record(writer, envlogger.StepData)
    with envlogger.Reader(str(directory)) as reader:
        episodes.check_recording(reader, envlogger.StepData)
    shards = sorted(path for path in directory.iterdir() if path.is_dir())
    for i, shard in enumerate(shards):
        shard.rename(directory / f"20240101T00000{i}000000")


if __name__ == "__main__":
    for options in OPTIONS:
        name = options.replace(":", "_").replace(",", "_")
        make(pathlib.Path(sys.argv[1]) / name, options)
