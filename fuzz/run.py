"""Fuzzes all targets of `tests/support/fuzz_targets.py`, one after the other: `make fuzz`.

The compiled core is built with AddressSanitizer, and with traps on undefined behaviour, so that
access outside of buffers is detected. Findings are stored in `build/fuzz/TARGET/`, as `crash-*`,
`oom-*` or `timeout-*`. After the fix, move them to `tests/riegeli/fuzz_inputs`, so that the suite
tries them again. Inputs that reach new code are stored, too, and the next run continues from them.
"""

import argparse
import os
import random
import re
import shlex
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "fuzz"
TARGETS = ("files", "chunks", "twins", "round_trips")
SANITIZE = (
    "-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fsanitize-undefined-trap-on-error"
)
MAX_INPUT_SIZE = 1500
MAX_MEGABYTES = 2048
MAX_SECONDS_FOR_AN_INPUT = 20


def build_extension() -> Path:
    """Compiles the core with the sanitizers whose library atheris has."""
    BUILD.mkdir(parents=True, exist_ok=True)
    source, built = BUILD / "_compiled.c", BUILD / "_compiled.o"
    extension = BUILD / f"_compiled{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiler = os.environ.get("CC", "gcc")
    include = sysconfig.get_paths()["include"]
    for command in (
        [sys.executable, "-m", "cython", "-3", ROOT / "riegeli/_compiled.pyx", "-o", source],
        [compiler, "-c", "-fPIC", *shlex.split(SANITIZE), f"-I{include}", source, "-o", built],
        [compiler, "-shared", built, "-o", extension],
    ):
        subprocess.run(command, check=True)
    return extension


def fuzz(target: str, extension: Path, seconds: int) -> tuple[int, list[Path]]:
    """Fuzzes one target.

    Returns:
      The number of executions, and the files of the findings.
    """
    directory = BUILD / target
    corpus = directory / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in range(200):  # Initial inputs: about half of the bytes are 0.
        choose = random.Random(seed)
        size = choose.choice((20, 100, 500, MAX_INPUT_SIZE))
        content = bytes(choose.choice((0, choose.randrange(256))) for _ in range(size))
        (corpus / f"seed-{seed}").write_bytes(content)
    environment = os.environ | {
        "LD_PRELOAD": str(Path(atheris.path()) / "asan_with_fuzzer.so"),
        "ASAN_OPTIONS": "allocator_may_return_null=1:quarantine_size_mb=64:detect_leaks=0",
        "PYTHONMALLOC": "malloc",  # So that the sanitizer sees where objects end.
    }
    started = time.time()
    command = [
        *(sys.executable, ROOT / "fuzz" / "target.py", target, extension, corpus),
        f"-max_total_time={seconds}",
        f"-max_len={MAX_INPUT_SIZE}",
        f"-rss_limit_mb={MAX_MEGABYTES}",
        f"-timeout={MAX_SECONDS_FOR_AN_INPUT}",
        f"-artifact_prefix={directory}/",
        "-detect_leaks=0",
        "-print_final_stats=1",
    ]
    with open(directory / "log", "a+") as log:
        begin = log.tell()
        ended = subprocess.run(command, env=environment, stdout=log, stderr=log, check=False)
        log.seek(begin)
        text = log.read()
    executed = re.findall(r"number_of_executed_units: (\d+)", text)
    findings = [path for path in directory.glob("*-*") if path.stat().st_mtime >= started]
    if not executed or (ended.returncode and not findings):
        print(text[-2000:])
        raise RuntimeError(f"{target} did not run to its end, see {directory / 'log'}")
    return int(executed[-1]), sorted(findings)


def main() -> None:
    """Fuzzes the targets of the command line, or all; exits with 1 after a finding."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=1800, help="for all targets together")
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; all by default")
    arguments = parser.parse_args()
    targets = arguments.targets or TARGETS
    extension = build_extension()
    all_findings = []
    print(f"{'target':12} {'seconds':>8} {'executions':>12} {'findings':>9}", flush=True)
    for target in targets:
        begin = time.monotonic()
        executions, findings = fuzz(target, extension, arguments.seconds // len(targets))
        seconds = time.monotonic() - begin
        print(f"{target:12} {seconds:8.0f} {executions:12} {len(findings):9}", flush=True)
        all_findings += findings
    for path in all_findings:
        print(f"finding: {path}")
    sys.exit(bool(all_findings))


if __name__ == "__main__":
    main()
