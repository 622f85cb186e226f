"""Kills exports and edits with several workers in each phase, and repeats them until they succeed.

    python tests/support/killed_exports.py --kills 20 --seed 1 lerobot zarr

A process dies at one of its accesses to files, or some time after it. It counts the accesses to the
staged parts, to the draft of the dataset, and those after the draft got its final name.
"""

import argparse
import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

TARGETS = {
    "lerobot": ("made", {"fps": 10, "codec": "h264"}),
    "robomimic": ("made.h5", {}),
    "zarr": ("made", {}),
    "envlogger": ("made", {}),
    "webdataset": ("made", {}),
    "tfds": ("made", {}),
}
# The process that dies, and the accesses that it counts.
PHASES = [
    ("main", "parts"),
    ("worker", "parts"),
    ("main", "draft"),
    ("worker", "draft"),
    ("main", "publication"),
]
_PLAN = "KILLED_EXPORT"
_OPERATIONS = ("open", "os.", "shutil.", "ctypes.dlsym")
_MAX_KILLS = 4
_SECONDS = 600


# --- The killed processes.


def watch():
    """Counts the accesses of this process, and kills it at the planned one."""
    plan = json.loads(os.environ[_PLAN])
    role = "worker" if "rlds_ecosystem.files.worker" in sys.orig_argv else "main"
    log = os.open(plan["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    target, stage = plan["target"], "parts"
    folder, name = os.path.split(target)
    counts = collections.Counter()

    def count(event, arguments):
        nonlocal stage
        if not event.startswith(_OPERATIONS):
            return
        paths = [os.fsdecode(it) for it in arguments if isinstance(it, str | bytes | os.PathLike)]
        if "renameat2" in paths or (event == "os.rename" and target in paths):
            stage = "publication"
        elif stage != "publication":
            if any(path.startswith(f"{folder}/.{name}.draft/{name}") for path in paths):
                stage = "draft"
            elif any(path.startswith(f"{folder}/.{name}.parts") for path in paths):
                stage = "parts"
            else:
                return
        os.write(log, f"{role} {stage}\n".encode())
        counts[stage] += 1
        if [role, stage] == plan["phase"] and counts[stage] == plan["access"]:
            if plan["delay"]:
                threading.Thread(target=die, args=[plan], daemon=True).start()
            else:
                die(plan)

    sys.addaudithook(count)


def die(plan):
    time.sleep(plan["delay"])
    try:
        os.mkdir(plan["token"])
    except FileExistsError:
        return
    os.kill(0 if plan["kills_all"] else os.getpid(), signal.SIGKILL)


def run(kind, format, source, target):
    """Exports or edits a dataset with two workers, a few episodes at a time."""
    import rlds
    from rlds.conversion import parts, staging

    parts._MAX_EPISODES, staging._MAX_SERIAL_BYTES = 8, 0
    if kind == "convert":
        rlds.sources.export(source, format, target, jobs=2, **TARGETS[format][1])
    else:
        options = {} if format != "lerobot" else {"codec": "h264"}
        rlds.edit(
            target,
            rlds.editing.Set("reward", 1.0),
            keep_old=kind == "edit, old kept",
            jobs=2,
            target_options=options,
        )


# --- The process that plans the kills.


def contents(folder):
    """Returns the contents of files by name, without caches, which hold times."""
    files = [path for path in folder.rglob("*") if path.is_file() and ".feeds" not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


class Killed:
    """A dataset that killed processes export or edit.

    Args:
      folder: A new folder.
      kind: "convert", "edit", or "edit, old kept".
      format: The format.
      raw: The episodes.
      rng: Draws the accesses.
    """

    def __init__(self, folder, kind, format, raw, rng):
        self.kind, self.format, self.rng = kind, format, rng
        self.name = TARGETS[format][0]
        self.source, self.folder = raw, folder
        self.site, self.temporary = folder / "site", folder / "tmp"
        self.data, self.log, self.token = folder / "data", folder / "log", folder / "token"
        self.target = self.data / self.name
        for path in (self.site, self.temporary):
            path.mkdir(parents=True)
        (self.site / "sitecustomize.py").write_text("import killed_exports\nkilled_exports.watch()")
        self.hits = collections.Counter()
        self.begin = folder / "begin"
        self.begin.mkdir()
        if kind != "convert":
            self._call("convert", None)
            self.data.rename(self.begin)
        self._restart()
        self.log.unlink(missing_ok=True)
        began = time.monotonic()
        self._call(kind, None)
        self.seconds = time.monotonic() - began
        self.accesses = collections.Counter(
            map(tuple, map(str.split, self.log.read_text().splitlines()))
        )
        for phase in PHASES:  # Each of two workers has its own count.
            self.accesses[phase] //= 1 + (phase[0] == "worker")
        self.expected = contents(self.data)

    def _restart(self):
        shutil.rmtree(self.data, ignore_errors=True)
        shutil.copytree(self.begin, self.data)

    def _call(self, kind, plan):
        """Waits for all processes of a run; returns its exit code and errors."""
        full_plan = {"phase": None, "access": 0, "delay": 0, "kills_all": True, **(plan or {})}
        full_plan |= {"log": str(self.log), "target": str(self.target), "token": str(self.token)}
        paths = [self.site, Path(__file__).parent, *filter(None, sys.path)]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "TMPDIR": str(self.temporary),
            _PLAN: json.dumps(full_plan),
        }
        call = [sys.executable, __file__, "--run", kind, self.format, self.source, self.target]
        with subprocess.Popen(
            call, env=environment, stderr=subprocess.PIPE, start_new_session=True, text=True
        ) as process:  # Its workers also hold the pipe of errors.
            _, errors = process.communicate(timeout=_SECONDS)
        if plan is None and process.returncode:
            raise AssertionError(errors)
        return process.returncode, errors

    def kill(self, kills):
        """Kills until the count is reached; checks each resulting dataset."""
        while sum(self.hits.values()) < kills:
            self._restart()
            for _ in range(self.rng.randint(1, _MAX_KILLS)):
                self._kill()
                if self.is_done():
                    break
            if not self.is_done():
                self._call(self.kind, None)
            self.check()

    def _kill(self):
        phase = self.rng.choice([phase for phase in PHASES if self.accesses[phase]])
        plan = {
            "phase": phase,
            "access": self.rng.randint(1, self.accesses[phase]),
            "delay": self.rng.choice([0, self.rng.uniform(0, self.seconds / 8)]),
            "kills_all": phase[0] == "main" and self.rng.random() < 0.5,
        }
        shutil.rmtree(self.token, ignore_errors=True)
        code, errors = self._call(self.kind, plan)
        is_killed = self.token.exists()
        expected = -signal.SIGKILL if is_killed and phase[0] == "main" else 0
        assert code == expected, (plan, errors)
        self.hits[" ".join(phase)] += is_killed
        print(self.format, self.kind, plan, "killed" if is_killed else "ended", flush=True)

    def is_done(self):
        """Whether the dataset is new; checks that it is missing or old if not."""
        import rlds.sources
        from rlds_ecosystem.files.replacing import finish_replacing

        if self.kind == "convert":
            return self.target.exists()
        finish_replacing(self.target)
        values = [episode.steps["reward"][0] for episode in rlds.sources.open(self.target)]
        assert len({value == 1 for value in values}) == 1
        return values[0] == 1

    def check(self):
        """Checks the dataset, and that the next run leaves no other files."""
        actual = contents(self.data)
        assert not any(self.temporary.iterdir()), [*self.temporary.iterdir()]
        for name, content in self.expected.items():
            assert actual.get(name) == content, name
        if self.kind == "convert":
            code, errors = self._call("convert", {})
            assert not code or "exists and is not overwritten" in errors, errors
            assert contents(self.data).keys() == self.expected.keys()
        else:
            self._call("edit", None)
            names = {path.name for path in self.data.iterdir()}
            assert names <= {self.name, f"{self.name}.old", ".rlds"}, names


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", nargs=4)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("formats", nargs="*")
    options = parser.parse_args()
    if options.run:
        run(*options.run)
        return
    import many_episodes

    hits = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        raw = many_episodes.write(Path(folder, "raw"))
        for format in options.formats or TARGETS:
            for kind in ("convert", "edit", "edit, old kept"):
                rng = random.Random(f"{options.seed} {format} {kind}")
                killed = Killed(Path(folder, format, kind), kind, format, raw, rng)
                killed.kill(options.kills)
                hits += killed.hits
                print(format, kind, dict(killed.accesses), dict(killed.hits), flush=True)
    print(dict(hits))


if __name__ == "__main__":
    main()
