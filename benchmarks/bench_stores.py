"""How many requests, and bytes, recordings and datasets in an object store cost.

    python benchmarks/bench_stores.py [--megabytes N]

The store is an emulator of Google Cloud Storage on this machine, `tests/support/gcs_server.py`,
which counts; the clients are the real ones, TensorFlow's and gcsfs, each in a process of its own.
The recording has N megabytes of noise (24) in episodes of 100 steps, and four shards. No job finds
what another has fetched.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import dm_env
import numpy as np
from dm_env import specs
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

STEPS = 100
FLOATS = 250
BYTES_PER_EPISODE = STEPS * FLOATS * 8


def record(url, num_episodes):
    """Records the noise."""
    import envlogger
    from envlogger.converters import spec_codec

    shapes = {"observation": (FLOATS,), "action": (), "reward": (), "discount": ()}
    encoded = {
        f"{name}_spec": spec_codec.encode(specs.Array(shape, np.float64))
        for name, shape in shapes.items()
    }
    rng = np.random.default_rng(0)
    with envlogger.RiegeliBackendWriter(
        url, num_episodes // 4, metadata={"environment_specs": encoded}
    ) as writer:
        for _ in range(num_episodes):
            observations = rng.random((STEPS, FLOATS))
            timesteps = [dm_env.transition(0.0, observation) for observation in observations]
            timesteps[0] = dm_env.restart(observations[0])
            timesteps[-1] = dm_env.termination(0.0, observations[-1])
            for step, timestep in enumerate(timesteps):
                writer.record_step(envlogger.StepData(timestep, 0.0), step == 0)


def read(url, order):
    """Reads all episodes as columns, in the order that a function of their number returns."""
    import envlogger

    with envlogger.Reader(url) as reader:
        for index in order(len(reader.episodes)):
            reader.columns(int(index))


def measure(client, megabytes):
    """What each job asks a store for: requests, bytes sent and received."""
    import stores_of_tests

    import tfds_builders
    from rlds_ecosystem.stores import _objects

    num_episodes = megabytes * 1_000_000 // BYTES_PER_EPISODE // 4 * 4
    shuffled = np.random.default_rng(0).permutation
    with tempfile.TemporaryDirectory() as folder:
        with stores_of_tests.running(client, folder) as store:
            log, data = store.directory(), store.directory()
            jobs = {
                "record": lambda: record(log, num_episodes),
                "read in order": lambda: read(log, range),
                "read in random order": lambda: read(log, shuffled),
                "convert, to the store": lambda: tfds_builders.build_from_logs(
                    log, name="noise", data_dir=data
                ),
            }
            result = {}
            for name, job in jobs.items():
                store.control.requests()
                _objects._cache = _objects._Cache()
                job()
                asked = store.control.requests()
                sent, received = (sum(item[i] for item in asked) for i in (2, 3))
                result[name] = len(asked), sent, received
    return result


def main():
    """Measures each client in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=24)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        print(json.dumps(measure(options.client, options.megabytes)))
        return
    table = Table("client", "job", "requests", "MB sent", "MB received", box=None)
    for client in ("tensorflow", "gcsfs"):
        command = [sys.executable, __file__, "--client", client]
        command += ["--megabytes", str(options.megabytes)]
        printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        for job, (requests, sent, received) in json.loads(printed.splitlines()[-1]).items():
            table.add_row(client, job, str(requests), f"{sent / 1e6:.1f}", f"{received / 1e6:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
