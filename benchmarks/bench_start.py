"""How long commands take that look at a dataset: `rlds`, beside `minari` and TFDS.

    python benchmarks/bench_start.py [--rounds N] [--json]

Each command runs in a process of its own; the processor time is that of the user and that of the
system. The dataset is one of Minari, and the TFDS folder that it is converted to. TFDS has no
command that looks at a dataset: there, Python prints what the builder knows.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import builder_cases as cases
import rounds
from rich.console import Console
from rich.table import Table

BIN = Path(sys.executable).parent
BY_TFDS = "import sys, tensorflow_datasets as t; print(t.builder_from_directory(sys.argv[1]).info)"

Commands = dict[str, list[str]]


def run(command: list[str], environment: dict[str, str]) -> rounds.Times:
    """Runs a command; returns what it took.

    Raises:
      RuntimeError: It failed.
    """
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    )
    errors = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{errors.decode()[-3000:]}")
    return usage.ru_utime + usage.ru_stime, wall


def commands(directory: Path) -> dict[str, Commands]:
    """Writes the dataset; returns what to run, by job."""
    from tfds_builders import MinariSource, convert

    cases.write_minari(str(directory), 50_000)
    dataset = directory / cases.MINARI_ID
    folder = convert(
        MinariSource(dataset), name="walk", data_dir=directory / "tfds", progress=False
    ).data_path
    installed = BIN / "rlds"
    rlds = [str(installed)] if installed.exists() else [sys.executable, "-m", "rlds_tools"]
    minari, tfds = str(BIN / "minari"), str(BIN / "tfds")
    return {
        "help": {
            "rlds": [*rlds, "--help"],
            "Minari": [minari, "--help"],
            "TFDS": [tfds, "--help"],
        },
        "look at a Minari dataset": {
            "rlds": [*rlds, "inspect", str(dataset)],
            "Minari": [minari, "show", cases.MINARI_ID],
        },
        "look at a TFDS folder": {
            "rlds": [*rlds, "inspect", str(folder)],
            "TFDS": [sys.executable, "-c", BY_TFDS, str(folder)],
        },
    }


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print lines of JSON")
    arguments = parser.parse_args()
    table = Table("", "", "CPU ms", "ms", title="Commands")
    with tempfile.TemporaryDirectory() as name:
        environment = {**os.environ, "MINARI_DATASETS_PATH": name, "TF_CPP_MIN_LOG_LEVEL": "3"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # What is installed has been compiled.
        for job, of_job in commands(Path(name)).items():
            times: dict[str, list[rounds.Times]] = {who: [] for who in of_job}
            for who, command in list(of_job.items()):
                try:
                    run(command, environment)  # What is not in the cache of the disk yet.
                except RuntimeError as error:
                    if who == "rlds":
                        raise
                    print(f"{who} is left out: {error}", file=sys.stderr)
                    del of_job[who], times[who]
            for _ in range(arguments.rounds):
                for who, command in of_job.items():
                    times[who].append(run(command, environment))
            if arguments.json:
                rounds.report(job, times)
                continue
            for who, (cpu, wall) in rounds.medians(times).items():
                table.add_row(job, who, f"{cpu * 1e3:,.0f}", f"{wall * 1e3:,.0f}")
    if not arguments.json:
        Console(width=100).print(table)


if __name__ == "__main__":
    main()
