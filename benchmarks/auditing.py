"""Measures what `rlds audit` finds: the tables of docs/audit.md.

    make audit            # or: python benchmarks/auditing.py [--seeds 41:51]
    python benchmarks/auditing.py --peers VENVS   # with lerobot-lint and further peers in venvs

Faults are planted in generated datasets (tests/support/audited_data.py), one episode each, and in
simulations of MuJoCo (tests/support/simulated_data.py); faults of pictures in
tests/support/camera_data.py. No check was developed on the data of tests/support/held_out_data.py.
The truth is given for conventions of actions (tests/support/action_conventions.py), forms of states
(tests/support/vector_forms.py), and the skill of demonstrations (tests/support/skilled_data.py).
Seeds below 41 were used for development and tests.
"""

import argparse
import collections
import functools
import itertools
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "support"))
import action_conventions
import audited_data
import camera_data
import skilled_data
import vector_forms

import rlds.sources
from rlds.auditing import CHECKS, SCORES, audit, audit_splits, meanings
from rlds.auditing.forms import forms
from rlds_tools import report

OF_PICTURES = {check.name for check in CHECKS if check.is_of_pictures}
NOISES = {"usual": "0.3 %, 5 %", "bad": "2 %, 30 %", "awful": "5 %, 100 %"}


class FaultyDataset(NamedTuple):
    """A dataset that faults are planted in.

    Attributes:
      planted: Makes it with faults, of a seed.
      clean: Makes another one without.
      faults: The faults, by name.
      codec: With one, it is written as LeRobot's video.
    """

    planted: Callable[[int], Any]
    clean: Callable[[int], Sequence[Any]]
    faults: Mapping[str, audited_data.Fault] = audited_data.FAULTS
    codec: Literal["h264"] | None = None

    def named_in(self, episodes: Sequence[Any]) -> dict[int, set[str]]:
        """The checks that name each episode; with cameras, those of pictures."""
        named = collections.defaultdict(set)
        has_cameras = self.faults is camera_data.FAULTS
        with tempfile.TemporaryDirectory() as folder:
            raw, exported = Path(folder, "raw"), Path(folder, "made")
            (camera_data if has_cameras else audited_data).write(raw, episodes)
            dataset = rlds.sources.open(raw)
            if self.codec is not None:
                rlds.sources.export(dataset, "lerobot", exported, fps=10, codec=self.codec)
                dataset = rlds.sources.open(exported)
            for finding in audit(dataset, jobs=1, progress=False).findings:
                if not has_cameras or finding.check in OF_PICTURES:
                    named[finding.episode].add(finding.check)
        return named


def faults(seeds: Iterable[int], datasets: Mapping[str, FaultyDataset]) -> None:
    """Prints the shares of detected planted faults, and of named clean episodes."""
    by_dataset: dict[str, np.ndarray] = {}
    by_fault: dict[str, np.ndarray] = {}
    for name, case in datasets.items():
        counts = by_dataset[name] = np.zeros(6, int)
        for seed in seeds:
            planted = case.planted(seed)
            named = case.named_in(planted.episodes)
            for episode, kind in planted.faults.items():
                causes = {*case.faults[kind].checks}
                is_found, more = bool(named[episode] & causes), bool(named[episode] - causes)
                counts[:2] += is_found, 1
                by_fault.setdefault(kind, np.zeros(3, int))[:] += is_found, 1, more
            clean = [n for n in range(len(planted.episodes)) if n not in planted.faults]
            counts[2:4] += sum(bool(named[episode]) for episode in clean), len(clean)
            alone = case.clean(seed + 1000)
            counts[4:] += sum(map(bool, case.named_in(alone).values())), len(alone)
    print("| dataset | faults detected | clean episodes named | in a dataset without faults |")
    print("|---|--:|--:|--:|")
    for name, (
        num_found,
        num_planted,
        named_clean,
        clean,
        named_alone,
        in_alone,
    ) in by_dataset.items():
        cells = (num_found, num_planted), (named_clean, clean), (named_alone, in_alone)
        print(f"| {name} | {' | '.join(_share(*cell) for cell in cells)} |")
    total = sum(by_dataset.values())
    print(f"| all | {' | '.join(_share(*total[column : column + 2]) for column in (0, 2, 4))} |\n")
    print("| fault | detected | with another finding, too |")
    print("|---|--:|--:|")
    for kind, (num_found, num_planted, more) in by_fault.items():
        print(f"| {kind} | {_share(num_found, num_planted)} | {more} |")
    print()


def generated() -> dict[str, FaultyDataset]:
    """The datasets of `audited_data`."""
    return {
        name: FaultyDataset(
            functools.partial(audited_data.plant_each, name),
            functools.partial(audited_data.make_episodes, name, episodes=60),
        )
        for name in audited_data.DATASETS
    }


def timed() -> dict[str, FaultyDataset]:
    """Some with the times of rows."""

    def clean(name: str, seed: int) -> list[audited_data.Episode]:
        return audited_data.with_times(audited_data.make_episodes(name, seed, 80), seed)

    kinds = audited_data.TIME_FAULTS
    return {
        f"{name}, with times": FaultyDataset(
            lambda seed, name=name: audited_data.plant(clean(name, seed), [*kinds], seed, kinds),
            functools.partial(clean, name),
            kinds,
        )
        for name in ("arm", "teleoperation", "base", "insertion")
    }


def leaks(seeds: Iterable[int]) -> None:
    """Prints the share of detected episodes of an earlier split; one in ten is one."""
    print("| dataset | equal | nearly equal | other episodes named |\n|---|--:|--:|--:|")
    for name in audited_data.DATASETS:
        counts = np.zeros((3, 2), int)
        for seed in seeds:
            train, test = (
                audited_data.make_episodes(name, seed),
                audited_data.make_episodes(name, seed + 1000, 40),
            )
            rng, near = np.random.default_rng(seed), audited_data.FAULTS["near duplicate"]
            same, alike = (rng.choice(40, 4, replace=False).reshape(2, 2)).tolist()
            for index in same:
                test[index] = train[index]
            for index in alike if name not in near.exceptions else ():
                test[index] = near.plant(None, train[index:], rng)
            with tempfile.TemporaryDirectory() as folder:
                for split, episodes in (("train", train), ("test", test)):
                    audited_data.write(Path(folder, split), episodes)
                splits = [rlds.sources.open(Path(folder, split)) for split in ("train", "test")]
                _, report = audit_splits(splits, jobs=1, progress=False)
            named = {it.episode for it in report.findings if it.check == "leak"}
            alike = alike if name not in near.exceptions else []
            distinct = {*range(40)} - {*same, *alike}
            for count, group in zip(counts, (same, alike, distinct)):
                count += len(named & {*group}), len(group)
        cells = (_share(*count) if count[1] else "" for count in counts)
        print(f"| {name} | {' | '.join(cells)} |")
    print()


def filmed() -> dict[str, FaultyDataset]:
    """The datasets of `camera_data`, as they are, and as video."""
    return {
        f"{name}{how}": FaultyDataset(
            functools.partial(camera_data.plant_each, name),
            functools.partial(camera_data.make_films, name),
            camera_data.FAULTS,
            codec,
        )
        for name in camera_data.DATASETS
        for how, codec in _STORED.items()
    }


_STORED: Mapping[str, Literal["h264"] | None] = {"": None, ", H.264": "h264"}


def simulated() -> dict[str, FaultyDataset]:
    """Returns the simulated datasets of MuJoCo."""
    import simulated_data

    return _of_torques(simulated_data.make_episodes, simulated_data.DATASETS, "HalfCheetah")


def controlled() -> dict[str, FaultyDataset]:
    """Returns the datasets of dm_control, which are held out."""
    import held_out_data

    return _of_torques(held_out_data.make_episodes, held_out_data.DM_CONTROL, "walker")


def games() -> dict[str, FaultyDataset]:
    """Returns Atari games, which are held out, as they are, and as video."""
    import held_out_data

    datasets = {}
    kinds = [kind for kind in camera_data.FAULTS if kind != "swapped"]  # There is one camera.
    for name, (how, codec) in itertools.product(held_out_data.GAMES, _STORED.items()):
        make = functools.partial(held_out_data.make_films, name)
        datasets[f"{name}{how}"] = FaultyDataset(
            lambda seed, make=make: camera_data.plant(make(seed), kinds, seed),
            make,
            camera_data.FAULTS,
            codec,
        )
    return datasets


def _of_torques(
    make: Callable[..., list[audited_data.Episode]], names: Iterable[str], with_large_steps: str
) -> dict[str, FaultyDataset]:
    """Returns datasets without the faults of grippers, and those of what actions lead to.

    Args:
      make: Makes episodes of a name, from a seed.
      names: The names.
      with_large_steps: That of which dropped rows look like its steps.
    """
    no_torque = audited_data.FAULTS["sign"].exceptions["gait"]
    datasets = {}
    for name in names:
        excluded = {"inert gripper"} | ({"rows dropped"} if name == with_large_steps else set())
        excluded |= {
            kind for kind, it in audited_data.FAULTS.items() if no_torque in it.exceptions.values()
        }
        kinds = [kind for kind in audited_data.FAULTS if kind not in excluded]
        datasets[name] = FaultyDataset(
            lambda seed, name=name, kinds=kinds: audited_data.plant(make(name, seed), kinds, seed),
            functools.partial(make, name, episodes=60),
        )
    return datasets


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
                case = action_conventions.make_case(name, seed, noise=noise)
                for truth, it in zip(case.truths, meanings(case.episodes), strict=True):
                    is_wrong = action_conventions.is_wrong(truth, it)
                    how = 0 if action_conventions.is_right(truth, it) else 2 if is_wrong else 1
                    counts[int("unknown" in truth.kinds), how] += 1
        (right, unknown, wrong), (right_of_others, _, wrong_of_others) = counts.tolist()
        print(f"| {text} | {right} | {unknown} | {wrong} | {right_of_others} | {wrong_of_others} |")


def state_forms(seeds: Iterable[int]) -> None:
    """Prints how many elements of states are told right."""
    print("\n| noise of states | right | unknown | wrong | without a form: unknown | wrong |")
    print("|---|--:|--:|--:|--:|--:|")
    for noise in vector_forms.NOISES:
        counts = np.zeros((2, 3), int)
        for name, seed in itertools.product((*vector_forms.FORMS, *vector_forms.UNKNOWABLE), seeds):
            episodes, truths = vector_forms.make_vectors(name, seed, noise=noise)
            recognized = forms(episodes)
            for index, truth in enumerate(truths):
                kind = recognized[index].kind if index in recognized else ""
                counts[int(not truth), 1 if not kind else 0 if kind == truth else 2] += 1
        (right, unknown, wrong), (_, unknown_of_others, wrong_of_others) = counts.tolist()
        text = NOISES[noise].split(",")[0] if noise in NOISES else noise
        print(
            f"| {text} | {right} | {unknown} | {wrong} | {unknown_of_others} | {wrong_of_others} |"
        )


def skills(seeds: Iterable[int]) -> None:
    """Prints how well scores separate demonstrations of experts."""
    areas_by_score: dict[str, list[float]] = {score.name: [] for score in SCORES}
    for task in skilled_data.TASKS:
        task_areas: dict[str, list[float]] = {name: [] for name in areas_by_score}
        for seed in seeds:
            demonstrations = skilled_data.make_demonstrations(task, seed)
            episodes = [each for of_skill in demonstrations.values() for each in of_skill]
            is_expert = np.repeat(
                [skill == "expert" for skill in demonstrations], len(demonstrations["expert"])
            )
            with tempfile.TemporaryDirectory() as folder:
                audited_data.write(Path(folder), episodes)
                source = rlds.sources.open(folder).source
                declared = rlds.sources.Episodes(source, declared={"fps": skilled_data.RATE})
                scores = audit(declared, jobs=1, progress=False).scores
            for name, values in scores.items():
                task_areas[name].append(_area(values[is_expert], values[~is_expert]))
        for name, areas in task_areas.items():
            areas_by_score[name].append(float(np.mean(areas)))
    print(f"\n| score | {' | '.join(skilled_data.TASKS)} |")
    print(f"|---|{'--:|' * len(skilled_data.TASKS)}")
    for name, areas in areas_by_score.items():
        print(f"| `{name}` | {' | '.join(f'{area:.2f}' for area in areas)} |")


def _area(better: np.ndarray, worse: np.ndarray) -> float:
    """Returns the area under the ROC curve of two sets of scores: 0.5 is chance."""
    apart = better[:, None] - worse
    return float((apart > 0).mean() + (apart == 0).mean() / 2)


def speed(num_episodes: int) -> None:
    """Prints the processor time of an audit in one process, and of reading the data once.

    Args:
      num_episodes: The number of episodes, of 100 rows, with 14 elements of the state and 7 of the
        action, without images.
    """
    print("\n| format | rows | reading once | `rlds audit` | rows a minute | `rlds report` |")
    print("|---|--:|--:|--:|--:|--:|")
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder, "raw")
        raw.mkdir()
        for index in range(num_episodes):
            states = rng.normal(size=(101, 14)).cumsum(0).cumsum(0)
            arrays = {"observation": states[:-1], "action": np.diff(states[:, :7], axis=0)}
            np.savez(raw / f"{index:06}.npz", **arrays)
        for name, options in (("lerobot", {"fps": 20}), ("tfds", {})):
            stored = Path(folder, name)
            rlds.sources.export(rlds.sources.open(raw), name, stored, **options)
            episodes = rlds.sources.open(stored)
            rows, read = _timed(sum, map(len, episodes))
            _, audited = _timed(audit, episodes, jobs=1, progress=False)
            _, reported = _timed(report, stored, jobs=1, progress=False)
            seconds = [f"{read:.1f} s", f"{audited:.1f} s, {audited / read:.0f} x"]
            cells = [*seconds, f"{rows / audited * 60:,.0f}", f"{reported:.1f} s"]
            print(f"| {name} | {rows:,} | {' | '.join(cells)} |")


def _timed(function: Callable[..., Any], *values: Any, **options: Any) -> tuple[Any, float]:
    """The result of a function, and the processor time that it took, in seconds."""
    begin = time.process_time()
    return function(*values, **options), time.process_time() - begin


# --- Peers ---------------------------------------------------------------------------------------


def _lint(dataset: Path, tool: Path, report: Path, has_video: bool) -> set[int]:
    """The episodes with errors and warnings of lerobot-lint."""
    _run(
        tool / "lelint", "check", dataset, *([] if has_video else ["--no-video"]), "--json", report
    )
    findings = json.loads(report.read_text())["findings"]
    return {each["episode"] for each in findings if each["severity"] != "info"} - {None}


def _doctor(dataset: Path, tool: Path, report: Path, has_video: bool) -> set[int]:
    """The episodes that lerobot-doctor names in what is no PASS; it always looks at video."""
    output = _run(tool / "lerobot-doctor", "check", dataset, "--json")
    messages = [
        message["message"]
        for check in json.loads(output)["checks"]
        for message in check["messages"]
        if message["severity"] != "PASS"
    ]
    lists = re.findall(r"episode\S*\s*(?:pair\(s\) detected)?[^:]*: (\[.*\])", "\n".join(messages))
    single = re.findall(r"[Ee]pisode (\d+)", "\n".join(messages))
    return {int(each) for each in [*single, *re.findall(r"\d+", " ".join(lists))]}


def _rda(dataset: Path, tool: Path, report: Path, has_video: bool) -> set[int]:
    """The episodes that robot-data-audit does not pass."""
    video = "--full" if has_video else "--no-video"
    _run(tool / "rda", "audit", dataset, video, "--format", "json", "-o", report)
    episodes = json.loads(report.read_text())["episodes"]
    return {each["episode_index"] for each in episodes if each["verdict"] != "PASS"}


PEERS = {
    "lerobot-lint 0.1.1": ("lerobot-lint", _lint),
    "lerobot-doctor 0.2.0": ("lerobot-doctor", _doctor),
    "robot-data-audit 0.11.0": ("robot-data-audit", _rda),
}


def _run(*words: object) -> str:
    return subprocess.run([*map(str, words)], capture_output=True, text=True).stdout


def peers(seeds: Iterable[int], datasets: Mapping[str, FaultyDataset], tools: Path) -> None:
    """Prints which episodes of LeRobot datasets peers name: the right ones for any reason.

    Args:
      seeds: The seeds of the data.
      datasets: The datasets; those with a codec are written as video.
      tools: The folder with a venv of each peer.
    """
    counts: dict[str, dict[str, np.ndarray]] = {}
    for (name, case), seed in itertools.product(datasets.items(), seeds):
        planted = case.planted(seed)
        faulty = {*planted.faults}
        clean = {*range(len(planted.episodes))} - faulty
        for tool, episodes in _named_by_tools(case, planted.episodes, tools).items():
            of_tool = counts.setdefault(tool, {}).setdefault(name, np.zeros(4, int))
            of_tool += len(episodes & faulty), len(faulty), len(episodes & clean), len(clean)
    heads = ["faulty episodes named", "clean episodes named", "the most of a dataset"]
    print(f"\n| tool | {' | '.join(heads)} |\n|---|--:|--:|--:|")
    for tool, by_dataset in counts.items():
        named, num_faulty, wrong, num_clean = sum(by_dataset.values())
        share, name = max((count[2] / count[3], name) for name, count in by_dataset.items())
        cells = _share(named, num_faulty), _share(wrong, num_clean), f"{name}, {share:.0%}"
        print(f"| {tool} | {' | '.join(cells)} |")


def _named_by_tools(
    case: FaultyDataset, episodes: Sequence[Any], tools: Path
) -> dict[str, set[int]]:
    """The episodes that each tool names, of the LeRobot form of a dataset."""
    has_cameras = case.codec is not None
    with tempfile.TemporaryDirectory() as folder:
        raw, dataset = Path(folder, "raw"), Path(folder, "dataset")
        (camera_data if has_cameras else audited_data).write(raw, episodes)
        rate = 10 if has_cameras else 20
        rlds.sources.export(rlds.sources.open(raw), "lerobot", dataset, fps=rate, codec=case.codec)
        audited = audit(rlds.sources.open(dataset), jobs=1, progress=False)
        named = {"rlds audit": {*audited.episodes}}
        for peer, (venv, find) in PEERS.items():
            named[peer] = find(
                dataset, tools / venv / "bin", Path(folder, "report.json"), has_cameras
            )
    return named


def _share(count: int, total: int) -> str:
    return f"{count} of {total}, {count / total:.1%}"


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="41:51", help="from which to before which")
    parser.add_argument("--speed", type=int, help="measure the speed only, of as many episodes")
    parser.add_argument("--peers", type=Path, help="compare with peers in the venvs of a folder")
    options = parser.parse_args()
    begin, end = map(int, options.seeds.split(":"))
    if options.peers is not None:
        peers(range(begin, end), generated(), options.peers)
        filmed_as_video = {name: case for name, case in filmed().items() if case.codec}
        peers(range(begin, end), filmed_as_video, options.peers)
        return
    if options.speed is not None:
        speed(options.speed)
        return
    faults(range(begin, end), generated())
    faults(range(begin, begin + 2), simulated())
    faults(range(begin, begin + 2), controlled())
    faults(range(begin, begin + 3), timed())
    leaks(range(begin, begin + 3))
    # Thresholds and generators were changed after the seeds from 41 to 43.
    faults(range(begin + 3, begin + 6), filmed())
    faults(range(begin, begin + 2), games())
    conventions(range(begin + 1000, end + 1000))
    state_forms(range(begin + 1000, end + 1000))
    skills(range(begin, end))
    speed(2000)


if __name__ == "__main__":
    main()
