"""Measures what `rlds audit` finds: the tables of docs/audit.md.

    make audit            # or: python benchmarks/auditing.py [--seeds 41:51]

Faults are planted in generated datasets (tests/support/audited_data.py), one episode each, and
conventions of actions are known (tests/support/action_conventions.py). Seeds below 41 were used
while the checks were made, and for tests.
"""

import argparse
import collections
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "support"))
import action_conventions
import audited_data

import rlds.sources
from rlds.auditing import audit, meanings

NOISES = {"usual": "0.3 %, 5 %", "bad": "2 %, 30 %", "awful": "5 %, 100 %"}


def write(folder: Path, episodes: Sequence[audited_data.Episode]) -> None:
    """Writes episodes to a file each."""
    for number, each in enumerate(episodes):
        arrays = {"observation/state": each.state, "action": each.action}
        task = np.array(each.task)
        np.savez(folder / f"{number:04}.npz", **arrays, language_instruction=task)


def named_in(episodes: Sequence[audited_data.Episode]) -> dict[int, set[str]]:
    """The checks that name each episode."""
    found = collections.defaultdict(set)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), episodes)
        for finding in audit(rlds.sources.open(folder), jobs=1, progress=False).findings:
            found[finding.episode].add(finding.check)
    return found


def faults(seeds: Iterable[int]) -> None:
    """Prints how many planted faults are found, and how many clean episodes are named."""
    by_dataset: dict[str, np.ndarray] = {}
    by_fault: dict[str, np.ndarray] = {}
    for name in audited_data.DATASETS:
        counts = by_dataset[name] = np.zeros(6, int)
        for seed in seeds:
            given = audited_data.planted(name, seed)
            named = named_in(given.episodes)
            for number, kind in given.faults.items():
                is_found = bool(named[number] & {*audited_data.FAULTS[kind].found})
                more = len(named[number] - {*audited_data.FAULTS[kind].found}) > 0
                counts[:2] += is_found, 1
                by_fault.setdefault(kind, np.zeros(3, int))[:] += is_found, 1, more
            clean = [n for n in range(len(given.episodes)) if n not in given.faults]
            counts[2:4] += sum(bool(named[number]) for number in clean), len(clean)
            alone = audited_data.made(name, seed + 1000)
            counts[4:] += sum(map(bool, named_in(alone).values())), len(alone)
    print("| dataset | faults found | clean episodes named | in a dataset without faults |")
    print("|---|--:|--:|--:|")
    for name, (found, number, named_clean, clean, named_alone, in_alone) in by_dataset.items():
        cells = (found, number), (named_clean, clean), (named_alone, in_alone)
        print(f"| {name} | {' | '.join(_share(*cell) for cell in cells)} |")
    total = sum(by_dataset.values())
    print(f"| all | {' | '.join(_share(*total[at : at + 2]) for at in (0, 2, 4))} |\n")
    print("| fault | found | with another finding, too |")
    print("|---|--:|--:|")
    for kind, (found, number, more) in by_fault.items():
        print(f"| {kind} | {_share(found, number)} | {more} |")


def conventions(seeds: Iterable[int]) -> None:
    """Prints how many elements of actions are told right."""
    print(
        "\n| noise of states, of actions | right | unknown | wrong | unknowable: unknown | wrong |"
    )
    print("|---|--:|--:|--:|--:|--:|")
    for noise, text in NOISES.items():
        counts = np.zeros((2, 3), int)
        for name in action_conventions.CONVENTIONS:
            for seed in seeds:
                case = action_conventions.made(name, seed, noise=noise)
                for truth, it in zip(case.truths, meanings(case.episodes), strict=True):
                    is_wrong = action_conventions.is_wrong(truth, it)
                    how = 0 if action_conventions.is_right(truth, it) else 2 if is_wrong else 1
                    counts[int("unknown" in truth.kinds), how] += 1
        (right, unknown, wrong), (right_of_others, _, wrong_of_others) = counts.tolist()
        print(f"| {text} | {right} | {unknown} | {wrong} | {right_of_others} | {wrong_of_others} |")


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}, {part / whole:.1%}"


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="41:51", help="from which to before which")
    begin, end = map(int, parser.parse_args().seeds.split(":"))
    faults(range(begin, end))
    conventions(range(begin + 1000, end + 1000))


if __name__ == "__main__":
    main()
