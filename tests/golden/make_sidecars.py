"""Makes the golden sidecars of version 1, with this project at c896e75e: a protobuf per episode.

    python make_sidecars.py DIRECTORY

The files in `sidecars_1/` are its output and never change: this project must always read them.
"""

import pathlib
import sys
import tempfile

import sidecar_episodes

import rlds.sources

if __name__ == "__main__":
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir()
    with tempfile.TemporaryDirectory() as temporary:
        raw = sidecar_episodes.write(pathlib.Path(temporary, "raw"))
        for format, name in sidecar_episodes.FORMATS.items():
            options = {"fps": 10} if format == "lerobot" else {}
            rlds.sources.export(raw, format, directory / name, **options)
