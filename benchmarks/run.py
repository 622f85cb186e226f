"""Compares this project with its peers, and writes the first table and figure of the docs.

    make bench            # or: python benchmarks/run.py [--quick]

Peers are what people would use otherwise: EnvLogger 1.2, rlds 0.1.8, TFDS and Minari. The first two
cannot live beside this project, so they get a place of their own in `build/peers`, once. To use
others, set ENVLOGGER_PYTHON, a Python that has EnvLogger 1.2, and RLDS_PEER_PYTHON, one that has
rlds 0.1.8. What cannot be installed is left out, and named.

Each script in `SCRIPTS` runs in a process of its own, with rounds in which contenders alternate.
The results go to `benchmarks/results/<date>.json`; the table and the figure of `docs/benchmarks.md`
are made of the newest of these files. With `--quick` the jobs are small, and the table is only
printed. With `--render` nothing is measured.
"""

import argparse
import datetime
import importlib.metadata
import json
import math
import os
import platform
import re
import shlex
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import rounds

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
FIGURE = ROOT / "docs" / "benchmarks.svg"
PEERS = ROOT / "build" / "peers"

ENVLOGGER, RLDS, TFDS, MINARI = "EnvLogger 1.2", "rlds 0.1.8", "TFDS", "Minari"
# What is installed for the first two. EnvLogger gets the fast protobuf.
ENVLOGGER_PACKAGES = ["envlogger==1.2", "protobuf==4.25.8", "numpy==1.26.4", "dm-env", "absl-py"]
RLDS_PACKAGE = "rlds==0.1.8"


# --- What is compared ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Script:
    """A benchmark, and its arguments for a usual run and for a quick one."""

    name: str
    usual: str
    quick: str


SCRIPTS = [
    Script(
        "bench_envlogger.py",
        "--rounds 5 --part 0.4 --kinds 'float32(17)' 'uint8 84x84x4'",
        "--rounds 1 --part 0.1 --kinds 'float32(17)' 'uint8 84x84x4'",
    ),
    Script(
        "bench_builders.py",
        "--only d4rl logs rlu --rounds 3 --rows 200_000 --steps 30_000",
        "--only d4rl --rounds 1 --rows 20_000",
    ),
    Script(
        "bench_builders.py",
        "--only 'minari readers' columns --rounds 5 --steps 10_000",
        "--only 'minari readers' columns --rounds 1 --steps 2_000",
    ),
    Script("bench_episode_writer.py", "--rounds 5 --episodes 40", "--rounds 1 --episodes 10"),
    Script(
        "bench_transformations.py",
        "--rounds 5 --episodes 40 --what transformations images recipes "
        "--only 'batch(size=2' truncate 'statistics without' shuffled",
        "--rounds 1 --episodes 10 --only 'batch(size=2' truncate",
    ),
    Script("bench_start.py", "--rounds 5", "--rounds 1"),
]


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
      title: What is done.
      peer: Beside whom.
      job: How the name of the job begins in the report of its script.
      ours: The contender that is this project.
      theirs: The contender that is the peer.
      job_of_peer: The job of the peer, if it has another name.
    """

    title: str
    peer: str
    job: str
    ours: str
    theirs: str
    job_of_peer: str = ""


ROWS = [
    Row("Record steps of 17 floats", ENVLOGGER, "float32(17): record", "here", ENVLOGGER),
    Row("Record frames, 84 x 84 x 4", ENVLOGGER, "uint8 84x84x4: record", "here", ENVLOGGER),
    Row("Read a log, step by step", ENVLOGGER, "float32(17): read in", "here", ENVLOGGER),
    Row("Read frames, step by step", ENVLOGGER, "uint8 84x84x4: read in", "here", ENVLOGGER),
    Row("Read random steps", ENVLOGGER, "float32(17): read 200", "here", ENVLOGGER),
    Row(
        *("Read a log as arrays (the peer: steps)", ENVLOGGER, "float32(17): read as", "here"),
        *(ENVLOGGER, "float32(17): read in"),
    ),
    Row("Convert D4RL", TFDS, "D4RL", "tfds_builders", "TFDS d4rl_mujoco_halfcheetah"),
    Row("Convert a log", TFDS, "Logs", "tfds_builders", "TFDS rlds_base, this reader"),
    Row("Convert RWRL", TFDS, "RWRL", "tfds_builders", "TFDS rlu_rwrl"),
    Row(
        *("Write a TFDS dataset", TFDS, "TFDS dataset", "write, EpisodeWriter, columns"),
        "write, SequentialWriter of TFDS",
    ),
    Row(
        *("Read a TFDS dataset as tensors", TFDS, "TFDS dataset", "read, rlds.tfds.load, batched"),
        "read, TFDS, nested steps",
    ),
    Row(
        *("Read a TFDS dataset as arrays", TFDS, "TFDS dataset", "read, tfds_files, columns"),
        "read, TFDS, nested steps",
    ),
    *(
        Row(
            *(f"Read Minari, episodes of {length} steps", MINARI),
            *(f"Reading Minari, HDF5, episodes of {length} steps", "MinariSource, made and read"),
            MINARI,
        )
        for length in (500, 10)
    ),
    Row(
        *("Read Minari through `rlds.sources.open`", MINARI, "Columns, Minari"),
        *("rlds.sources, opened and read", MINARI),
    ),
    *(
        Row(f"{title}, {layout}", RLDS, job, layout, "original")
        for title, job in {
            "Pairs of steps": "batch(size=2, shift=1)",
            "Pairs of steps with images": "images: batch(size=2, shift=1)",
            "Shuffled transitions": "recipes: shuffled transitions",
            "Cut episodes at a condition": "truncate_after_condition",
            "Mean and deviation": "recipes: statistics without quantiles",
        }.items()
        for layout in ("nested", "batched")
    ),
    Row("Command: `--help`", MINARI, "help", "rlds", MINARI),
    Row("Command: `--help`", TFDS, "help", "rlds", TFDS),
    Row("Command: look at a Minari dataset", MINARI, "look at a Minari dataset", "rlds", MINARI),
    Row("Command: look at a TFDS folder", TFDS, "look at a TFDS folder", "rlds", TFDS),
]


# --- Peers ---------------------------------------------------------------------------------------


def envlogger_python() -> str:
    """Returns a Python that has EnvLogger 1.2, which is installed if need be."""
    given = os.environ.get("ENVLOGGER_PYTHON", "")
    if given:
        return given
    python = PEERS / "envlogger" / "bin" / "python"
    if not python.exists():
        base = shutil.which("python3.11") or sys.executable  # The newest that it has wheels for.
        subprocess.run([base, "-m", "venv", "--clear", python.parents[1]], check=True)
        install = [python, "-m", "pip", "install", "--quiet", *ENVLOGGER_PACKAGES]
        if subprocess.run(install).returncode:
            shutil.rmtree(python.parents[1])
            raise RuntimeError("cannot be installed with this Python")
    # Elsewhere: in this directory there is another one. Debian has its library in libgmpxx4ldbl.
    found = subprocess.run([python, "-c", "import envlogger"], cwd="/", capture_output=True)
    if found.returncode:
        raise RuntimeError(found.stderr.decode().splitlines()[-1])
    return str(python)


def rlds_folder() -> Path:
    """Returns a folder that has the package of rlds 0.1.8 and nothing else."""
    folder = PEERS / "rlds"
    if not folder.exists():
        given = os.environ.get("RLDS_PEER_PYTHON", "")
        with_it = PEERS / "rlds.part"
        shutil.rmtree(with_it, ignore_errors=True)
        if given:
            find = "import importlib.util as u; print(u.find_spec('rlds').origin)"
            found = subprocess.run(
                [given, "-c", find], cwd="/", capture_output=True, text=True, check=True
            )
            shutil.copytree(Path(found.stdout.strip()).parent, with_it / "rlds")
        else:
            install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            subprocess.run([*install, "--target", with_it, RLDS_PACKAGE], check=True)
        with_it.rename(folder)
    return folder


def options_of_peers() -> tuple[dict[str, list[str]], list[str]]:
    """Returns the options that name peers, by script, and which peers are left out, and why."""
    options: dict[str, list[str]] = {}
    left_out = []
    for peer, script, make in (
        (ENVLOGGER, "bench_envlogger.py", lambda: ["--envlogger-python", envlogger_python()]),
        (RLDS, "bench_transformations.py", lambda: ["--peer", str(rlds_folder())]),
    ):
        try:
            options[script] = make()
        except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
            left_out.append(f"{peer}: {error}")
    return options, left_out


# --- Measuring -----------------------------------------------------------------------------------

# The rounds of each contender of each job, in seconds.
Found = dict[str, dict[str, list[rounds.Times]]]


def measure(script: Script, options: list[str], *, quick: bool, num_rounds: int | None) -> Found:
    """Runs a benchmark; returns what it reports, which is nothing if it fails."""
    arguments = shlex.split(script.quick if quick else script.usual)
    arguments += ["--rounds", str(num_rounds)] if num_rounds else []
    command = [sys.executable, str(HERE / script.name), "--json", *arguments, *options]
    print("$", *command[1:], file=sys.stderr, flush=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        print(
            f"{script.name} failed, its rows are left out:\n{done.stderr[-2000:]}", file=sys.stderr
        )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"job"')]
    return {line["job"]: line["seconds"] for line in lines}


def pick(found: Found, row: Row) -> dict[str, Any] | None:
    """Returns the rounds of a row, None if they were not measured."""

    def times(job: str, contender: str) -> list[rounds.Times] | None:
        of_job = next((of for name, of in found.items() if name.startswith(job)), {})
        return of_job.get(contender)

    ours = times(row.job, row.ours)
    theirs = times(row.job_of_peer or row.job, row.theirs)
    if not ours or not theirs:
        return None
    result: dict[str, Any] = {"job": row.title, "peer": row.peer}
    for kind, index in (("cpu", 0), ("wall", 1)):
        result[kind] = {
            "ours": [round(one[index], 6) for one in ours],
            "theirs": [round(one[index], 6) for one in theirs],
        }
    return result


def describe_machine() -> dict[str, Any]:
    """Returns what runs this, and the versions of what is compared."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        named = re.search(r"^model name\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE)
        model = named[1] if named else model
    # The last commit that changed what is measured: a later one may be of the results themselves.
    packages = [str(path.parent) for path in ROOT.glob("*/__init__.py")]
    log = ["git", "log", "-1", "--format=%h", "--", *packages]
    commit = subprocess.run(log, cwd=ROOT, capture_output=True, text=True)
    peers = ["tensorflow", "tensorflow-datasets", "minari", "numpy", "protobuf"]
    versions = {name: importlib.metadata.version(name) for name in peers}
    return {
        "commit": commit.stdout.strip(),
        "cpu": model,
        "cores": os.cpu_count(),
        "system": platform.system(),
        "versions": {"python": platform.python_version(), **versions},
    }


def compare(*, quick: bool, num_rounds: int | None = None) -> dict[str, Any]:
    """Measures all rows."""
    options, left_out = options_of_peers()
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr)
    found: Found = {}
    load = [os.getloadavg()[0]]
    for script in SCRIPTS:
        of_peer = options.get(script.name, [])
        found.update(measure(script, of_peer, quick=quick, num_rounds=num_rounds))
        load.append(os.getloadavg()[0])
    return {
        "date": datetime.date.today().isoformat(),
        **describe_machine(),
        "load": [round(min(load), 1), round(max(load), 1)],
        "rows": [picked for row in ROWS if (picked := pick(found, row))],
    }


# --- The table and the figure --------------------------------------------------------------------


@dataclass(frozen=True)
class Ratio:
    """How many times as fast as the peer, by processor time: the median of the rounds, and ends."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, row: dict[str, Any]) -> "Ratio":
        """Returns the ratio of a row of the results."""
        pairs = zip(row["cpu"]["theirs"], row["cpu"]["ours"])
        ratios = [theirs / max(ours, 1e-6) for theirs, ours in pairs]
        return cls(statistics.median(ratios), min(ratios), max(ratios))


def in_words(ratio: float) -> str:
    """Writes a ratio with two digits that count."""
    return f"{ratio:.0f}" if ratio >= 9.95 else f"{ratio:.1f}" if ratio >= 1.95 else f"{ratio:.2f}"


def in_time(seconds: float) -> str:
    """Writes seconds with a unit, and two or three digits that count."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.1f} ms"


def table(results: dict[str, Any]) -> str:
    """Returns the table of results, with what it takes to judge it."""
    lines = [
        "| job | beside | here | there | times as fast | lowest to highest |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for row in results["rows"]:
        ratio = Ratio.of(row)
        ours, theirs = (in_time(statistics.median(row["cpu"][who])) for who in ("ours", "theirs"))
        median = in_words(ratio.median)
        cells = [row["job"], row["peer"], ours, theirs]
        cells += [f"**{median}**" if ratio.median < 1 else median]
        cells += [f"{in_words(ratio.low)} to {in_words(ratio.high)}"]
        lines.append(f"| {' | '.join(cells)} |")
    versions = results["versions"]
    low, high = results["load"]
    counts = sorted({len(row["cpu"]["ours"]) for row in results["rows"]})
    lines += [
        "",
        f"Measured on {results['date']}, at commit {results['commit']}, with Python "
        f"{versions['python']}, TensorFlow {versions['tensorflow']},",
        f"TFDS {versions['tensorflow-datasets']} and Minari {versions['minari']}, on "
        f"{results['cores']} "
        f"cores of a shared machine ({results['cpu']}),",
        f"whose load was {low} to {high}. All times are processor times: medians of "
        f"{' or '.join(map(str, counts))} rounds. Ratios below 1,",
        "where this project is slower, are bold.",
    ]
    return "\n".join(lines)


WIDTH, ROW_HEIGHT, TOP, LEFT, RIGHT = 860, 24, 58, 330, 66
COLOURS = {ENVLOGGER: "#0b62b4", TFDS: "#b3541e", MINARI: "#2d7d46", RLDS: "#7b3fa0"}


def figure(
    results: dict[str, Any],
    colours: Mapping[str, str] = COLOURS,
    title: str = "How many times as fast as its peers this project is, job by job",
) -> str:
    """Returns the ratios as a figure: a dot is the median, a line goes from lowest to highest."""
    rows = [(row, Ratio.of(row)) for row in results["rows"]]
    decades = [math.log10(value) for _, ratio in rows for value in (ratio.low, ratio.high)]
    low, high = min(-0.5, *decades) - 0.05, max(1.5, *decades) + 0.05
    height = TOP + ROW_HEIGHT * len(rows) + 34

    def x(ratio: float) -> str:
        place = LEFT + (math.log10(ratio) - low) / (high - low) * (WIDTH - LEFT - RIGHT)
        return f"{place:.1f}"

    peers = [peer for peer in colours if any(row["peer"] == peer for row, _ in rows)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'width="{WIDTH}" height="{height}">',
        f"<title>{escape(title)}</title>",
        "<style>",
        "text{font:13px system-ui,sans-serif;fill:#222}.n{text-anchor:end}.m{text-anchor:middle}",
        ".grid{stroke:#8884;stroke-width:1}.one{stroke:#222;stroke-width:1.5}",
        *(f".p{i}{{fill:{colours[p]};stroke:{colours[p]}}}" for i, p in enumerate(peers)),
        "</style>",
        # Not every page that shows it in dark mode says so to an image.
        '<rect width="100%" height="100%" rx="6" fill="#fff"/>',
        f'<text x="{LEFT}" y="18">times as fast as the peer, by processor time; '
        "left of 1x: slower</text>",
    ]
    place = LEFT
    for i, peer in enumerate(peers):
        parts.append(f'<circle class="p{i}" cx="{place + 5}" cy="34" r="5"/>')
        parts.append(f'<text x="{place + 16}" y="38">{escape(peer)}</text>')
        place += 120
    bottom = TOP + ROW_HEIGHT * len(rows)
    for exponent in range(math.floor(low), math.ceil(high) + 1):
        for digit in (1, 2, 5):
            value = digit * 10.0**exponent
            if low <= math.log10(value) <= high:
                style = "one" if value == 1 else "grid"
                at = x(value)
                parts.append(f'<path class="{style}" d="M{at} {TOP - 8}V{bottom}"/>')
                if digit == 1 or high - low < 4:  # Others would lie on each other.
                    parts.append(f'<text class="m" x="{at}" y="{bottom + 18}">{value:g}x</text>')
    for number, (row, ratio) in enumerate(rows):
        y = TOP + ROW_HEIGHT * number + ROW_HEIGHT // 2
        style = f"p{peers.index(row['peer'])}"
        title = escape(row["job"].replace("`", ""))
        parts += [
            f'<text class="n" x="{LEFT - 12}" y="{y + 4}">{title}</text>',
            f'<path class="{style}" stroke-width="3" stroke-opacity=".5" '
            f'd="M{x(ratio.low)} {y}H{x(ratio.high)}"/>',
            f'<circle class="{style}" cx="{x(ratio.median)}" cy="{y}" r="5"/>',
            f'<text class="n" x="{WIDTH - 8}" y="{y + 4}">{in_words(ratio.median)}x</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


BEGIN, END = "<!-- begin of the results -->", "<!-- end of the results -->"


def newest() -> dict[str, Any]:
    """Returns the newest results."""
    results: dict[str, Any] = json.loads(max(RESULTS.glob("*.json")).read_text())
    return results


def with_table(page: str, results: dict[str, Any]) -> str:
    """Returns the page with the table of these results."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(results)}\n\n{END}{after}"


def main() -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small jobs; prints the table only")
    parser.add_argument("--rounds", type=int, help="instead of those in SCRIPTS")
    parser.add_argument("--render", action="store_true", help="only write the table and the figure")
    arguments = parser.parse_args()
    if not arguments.render:
        results = compare(quick=arguments.quick, num_rounds=arguments.rounds)
        print(table(results))
        if arguments.quick:
            return
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{results['date']}.json"
        text = json.dumps(results, indent=1)  # With the numbers of a list on one line.
        text = re.sub(r"\[[^][{}]*\]", lambda numbers: " ".join(numbers[0].split()), text)
        path.write_text(text + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), newest()))
    FIGURE.write_text(figure(newest()))


if __name__ == "__main__":
    main()
