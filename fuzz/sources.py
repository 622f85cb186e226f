"""Feeds damaged raw data of all formats to their sources, see `tests/support/hostile_sources.py`.

Findings are stored as `build/fuzz/sources/FORMAT-NUMBER.zip`, with a log. After the fix, move them
to `tests/rlds/formats/hostile_inputs`, so that the suite tries them again.
"""

import argparse
import shutil
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import hostile_sources  # noqa: E402

# The number of inputs of a process.
BATCH = 500


def main() -> None:
    """Tries inputs of the formats in turn; exits with 1 after a finding."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=1800, help="for all formats together")
    parser.add_argument("--begin", type=int, default=int(time.time()), help="the first input")
    parser.add_argument("--directory", type=Path, default=ROOT / "build" / "fuzz" / "sources")
    formats = ", ".join(hostile_sources.FORMATS)
    parser.add_argument("formats", nargs="*", help=f"of {formats}; all by default")
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    log = arguments.directory / f"log-{arguments.begin}"
    log.touch()
    names = arguments.formats or list(hostile_sources.FORMATS)
    for name in names:  # Loads all modules before the memory of processes is limited.
        hostile_sources.outcome(name, dict(hostile_sources.files_of(name)))
    started, begin, total = time.monotonic(), arguments.begin, 0
    while time.monotonic() - started < arguments.seconds:
        for name in names:
            if time.monotonic() - started < arguments.seconds:
                hostile_sources.try_many(name, begin, begin + BATCH, log)
                total += BATCH
        begin += BATCH
    findings = [line.rstrip() for line in log.read_text().splitlines() if not line.startswith(" ")]
    print(
        f"{total} inputs in {time.monotonic() - started:.0f} s, {len(findings)} findings, see {log}"
    )
    for line in findings:
        print(f"finding: {line}")
        name, seed = line.split(":")[0].split(" ")
        archive = arguments.directory / f"{name}-{seed}.zip"
        hostile_sources.pack(hostile_sources.mutated(name, int(seed)), archive)
    shutil.rmtree(hostile_sources.scratch(), ignore_errors=True)
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
