"""A program that kills conversions.

A process that has loaded all modules, and has no threads, forks one child after the other. Each
converts, and dies at some access to a file.
"""

import json
import os
import pickle
import random
import shutil
import signal
import sys
import traceback
from pathlib import Path

import conversions

import tfds_builders
from rlds.sources.source import AnySource

MAX_KILLS = 6


def main(directory: Path) -> None:
    sources: dict[str, AnySource] = pickle.loads((directory / "sources").read_bytes())
    results = {}
    for name, source in sources.items():
        complete, data_dir = directory / name / "whole", directory / name / "killed"
        num_accesses = in_child(source, complete, None)[1]
        random.seed(name)
        num_kills = 0
        # Until a conversion is complete, without a folder of staged files.
        while not (data_dir / "dataset" / "1.0.0").exists() or staged(data_dir):
            may_die = num_kills < MAX_KILLS
            accesses = random.randrange(num_accesses) if may_die else None
            num_kills += in_child(source, data_dir, accesses)[0] == -signal.SIGKILL
        results[name] = {
            "num_kills": num_kills,
            "expected": conversions.contents(complete / "dataset" / "1.0.0"),
            "contents": conversions.contents(data_dir / "dataset" / "1.0.0"),
            "left": sorted(path.name for path in (data_dir / "dataset").glob("[!.]*")),
        }
        shutil.rmtree(directory / name)
    (directory / "results").write_text(json.dumps(results))


def staged(data_dir: Path) -> bool:
    return (data_dir / "dataset" / ".1.0.0.parts").exists()


def in_child(source: AnySource, data_dir: Path, accesses: int | None) -> tuple[int, int]:
    """Converts in a child, which dies after some accesses to files of the dataset.

    Returns:
      The exit code, in the form of `subprocess`, and the number of accesses.
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
        except FileExistsError:  # The last conversion died while it cleaned up.
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(send)
    with open(receive, "rb") as stream:
        output = stream.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, -signal.SIGKILL):
        raise RuntimeError(f"a conversion ended with {status}")
    return status, int(output or 0)


def die_after(directory: Path, accesses: int | None) -> list[int]:
    """Kills this process at an access to a file of a directory; returns the count so far."""
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
