"""Reads, with the published envlogger, a recording that this project made of `episodes.py`.

    python read_with_envlogger.py DIRECTORY

Ends with an error unless all is as recorded.
"""

import pathlib
import sys

import envlogger

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
import episodes

if __name__ == "__main__":
    with envlogger.Reader(sys.argv[1]) as reader:
        episodes.same_recording(reader, envlogger.StepData)
        print(f"{len(reader.steps)} steps of {len(reader.episodes)} episodes as recorded")
