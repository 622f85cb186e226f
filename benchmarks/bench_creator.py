"""Whether `rlds create` does what it promises: ten goals, measured one by one.

    python benchmarks/bench_creator.py [--quick] [--only G1,G7] [--kills N] [--data DIR]
        [--json | --markdown]

Servers and workers are processes of their own, as people start them. Players are clients of the
WebSocket; for the time from a key to its picture there is Chromium with Playwright, if both are
installed. All of them run on this machine, beside the server.

G1   what a worker adds to a step of an environment
G2   16 players of Atari
G3   from a key to its picture
G4   kills of servers and workers
G5   a page that is loaded anew, or has no network for 30 s
G6   a player at 50 kB/s, and one who shows nothing
G7   an episode of 100,000 steps, a table of 10,000 episodes
G8   a download of 1 GB while 8 people play
G9   a flood of messages
G10  from the start to the first picture

Other work on the machine makes most of this slower: the load before and after each goal is in the
output. A full run takes about eight minutes, and 4 GB on the disk for G8.
"""

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import creator_goals
from creator_goals import Found, Size
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent


def in_words(number: float) -> str:
    """A number with three digits, or all of a whole one."""
    return f"{number:,.0f}" if abs(number) >= 100 or number % 1 == 0 else f"{number:.3g}"


def aim(found: Found) -> str:
    """What is promised."""
    if found.most is not None:
        return f"at most {in_words(found.most)}"
    return f"at least {in_words(found.least)}" if found.least is not None else ""


def row(goal: str, found: Found) -> tuple[str, str, str, str, str, str]:
    """The row of a table."""
    is_promised = found.most is not None or found.least is not None
    met = ("yes" if found.is_met else "missed") if is_promised else ""
    return goal, found.what, in_words(found.found), aim(found), met, found.note


def commit() -> str:
    """The commit of the checkout."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="about a minute; small, and less sure")
    parser.add_argument("--only", default="", help="some goals: G1,G7")
    parser.add_argument("--kills", type=int, help="of G4; 100 by default")
    parser.add_argument("--data", type=Path, help="where data is written; deleted at the end")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="a line for each figure")
    form.add_argument("--markdown", action="store_true", help="the table of docs/benchmarks.md")
    arguments = parser.parse_args()
    chosen = [name.strip().upper() for name in arguments.only.split(",") if name.strip()]
    unknown = set(chosen) - set(creator_goals.GOALS)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    # Servers are ended then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.environ["RLDS_CREATOR_TESTING"] = "1"
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    console = Console(stderr=True)
    rows, missed, failed, loads = [], 0, 0, [os.getloadavg()[0]]
    begin = time.monotonic()
    if arguments.markdown:
        print("| | | found | aim | met | |\n|---|---|--:|--:|---|---|", flush=True)
    with tempfile.TemporaryDirectory(dir=arguments.data) as directory:
        kills = arguments.kills or (4 if arguments.quick else 100)
        size = Size(arguments.quick, kills, Path(directory))
        for goal in chosen or creator_goals.GOALS:
            before, start = os.getloadavg()[0], time.monotonic()
            loads = sorted([*loads, before])
            console.print(f"{goal}: {creator_goals.GOALS[goal].__doc__}")
            try:
                found = list(creator_goals.GOALS[goal](size))
            except NotImplementedError as reason:
                console.print(f"  left out: {reason}")
                continue
            except Exception as error:  # The other goals are measured all the same.
                console.print_exception()
                rows.append((goal, "not measured", "", "", "failed", f"{error!r:.200}"))
                failed += 1
                continue
            loads = sorted([*loads, os.getloadavg()[0]])
            load = f"load {before:.1f} to {os.getloadavg()[0]:.1f}"
            console.print(f"  {time.monotonic() - start:.0f} s, {load}")
            missed += sum(not one.is_met for one in found)
            for one in found:
                rows.append(row(goal, one))
                if arguments.markdown:
                    print(f"| {' | '.join(rows[-1])} |", flush=True)
                elif arguments.json:
                    line = {"goal": goal, "what": one.what, "found": one.found, "note": one.note}
                    line |= {"most": one.most, "least": one.least, "load": before}
                    print(json.dumps(line), flush=True)
    title = (
        f"{datetime.date.today()}, commit {commit()}, {os.cpu_count()} cores, "
        f"{time.monotonic() - begin:.0f} s, load {loads[0]:.1f} to {loads[-1]:.1f}"
    )
    if arguments.markdown:
        print(f"\n{title}")
    elif not arguments.json:
        table = Table(title=title)
        for name in ("goal", "", "found", "aim", "met", ""):
            table.add_column(name, justify="right" if name == "found" else "left")
        for cells in rows:
            table.add_row(*cells)
        Console(width=None if sys.stdout.isatty() else 200).print(table)
        print(f"{missed} missed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
