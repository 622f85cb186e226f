"""Reads with the published envlogger a recording of `episodes.py` by this project.

    python read_with_envlogger.py DIRECTORY

Fails if anything differs from the recorded episodes.
"""

import pathlib
import sys

import envlogger

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
import episodes

if __name__ == "__main__":
    with envlogger.Reader(sys.argv[1]) as reader:
        episodes.check_recording(reader, envlogger.StepData)
        print(f"{len(reader.steps)} steps of {len(reader.episodes)} episodes as recorded")
