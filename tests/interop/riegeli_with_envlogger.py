"""Writes and reads Riegeli files with the published envlogger 1.2, which has Google's C++.

    python riegeli_with_envlogger.py JOBS

JOBS is a JSON file, a list of jobs. A job with `records`, in hexadecimal, writes them as the steps
of a dataset in `directory` with the writer options `options`. Other jobs read the steps of such a
dataset. The results overwrite JOBS: the steps or the error of each job.
"""

import json
import pathlib
import sys

from envlogger.backends.python import riegeli_dataset_reader, riegeli_dataset_writer
from envlogger.proto import storage_pb2


def write(directory, options, records):
    writer = riegeli_dataset_writer.RiegeliDatasetWriter()
    writer.init(directory, storage_pb2.Data(), 0, options)
    for i, record in enumerate(records):
        step = storage_pb2.Data.FromString(bytes.fromhex(record))
        if not writer.add_step(step, i == 0):
            raise RuntimeError(f"step {i} was not written")
    writer.close()


def read(directory):
    reader = riegeli_dataset_reader.RiegeliDatasetReader()
    reader.init(directory)
    steps = [reader.serialized_step(i) for i in range(reader.num_steps)]
    reader.close()
    return [None if step is None else step.hex() for step in steps]


def run(job):
    try:
        if "records" in job:
            return write(**job)
        return read(**job)
    except Exception as e:
        return f"{type(e).__name__}: {e}"


if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1])
    path.write_text(json.dumps([run(job) for job in json.loads(path.read_text())]))
