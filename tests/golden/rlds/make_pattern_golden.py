"""Asks the published rlds and reverb what they make of the cases in a file.

    python make_pattern_golden.py CASES.json ANSWERS.json

Needs rlds 0.1.8, dm-reverb 0.14 and TensorFlow 2.15. The answers are the cases with what came out
under `upstream`; for `pattern_golden.json` itself they are that file again. Other keys of a case
(`expected` above all) are what we say, and stay as they are.

Reverb ends the process at some of the cases. So the work is done by a process of its own, which is
started again for the cases that are left.
"""

import json
import pathlib
import subprocess
import sys
from typing import Any

SUPPORT = pathlib.Path(__file__).parents[2] / "support"


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Runs one case."""
    import pattern_cases
    import reverb

    from rlds import transformations

    structured_writer = reverb.structured_writer
    try:
        episodes = pattern_cases.World(case).nested()
        spec = transformations.step_spec(episodes)
        configs = [
            pattern_cases.config_of(config, spec, structured_writer) for config in case["configs"]
        ]
        if case.get("api") == "pattern_map_from_transform":
            (config,) = configs
            pattern = structured_writer.unpack_pattern(config)
            outputs = transformations.pattern_map_from_transform(
                episodes,
                lambda _: pattern,
                list(config.conditions),
                case["respect_episode_boundaries"],
            )
        else:
            outputs = transformations.pattern_map(
                episodes, configs, case["respect_episode_boundaries"]
            )
        result: dict[str, Any] = {
            "element_spec": encode(outputs.element_spec),
            "cardinality": int(outputs.cardinality()),
            "outputs": [],
        }
    except Exception as error:
        return {"error": describe("construct", error)}
    try:
        for output in outputs:
            result["outputs"].append(encode(pattern_cases.as_plain(output)))
    except Exception as error:
        result["error"] = describe("iterate", error)
    return result


def describe(stage: str, error: Exception) -> dict[str, str]:
    """Says what was raised and when."""
    message = (str(error).splitlines() or [""])[0][:200].strip()
    return {"stage": stage, "type": type(error).__name__, "message": message}


def encode(value: Any) -> Any:
    """Writes tuples and specs in the way of the file."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return {"shape": value.shape.as_list(), "dtype": value.dtype.name}
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return {"$tuple": [encode(item) for item in value]}
    return [encode(item) for item in value] if isinstance(value, list) else value


def work(path: str, first: int) -> None:
    """Prints the answers from a case on, a line for each."""
    sys.path.insert(0, str(SUPPORT))
    for case in json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["cases"][first:]:
        print("\n#" + json.dumps(answer(case)), flush=True)


def main(source: str, target: str) -> None:
    """Answers all cases of a file."""
    content = json.loads(pathlib.Path(source).read_text(encoding="utf-8"))
    cases = content["cases"]
    answers: list[dict[str, Any]] = []
    while len(answers) < len(cases):
        command = [sys.executable, __file__, "--work", source, str(len(answers))]
        process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        answers += [json.loads(line[1:]) for line in process.stdout.splitlines() if line[:1] == "#"]
        if process.returncode > 0:
            raise SystemExit(f"The process failed at case {len(answers)}.")
        if process.returncode < 0:
            message = f"interpreter killed by signal {-process.returncode}"
            error = {"stage": "iterate", "type": "PROCESS_ABORT", "message": message}
            answers.append({"error": error})
    for case, upstream in zip(cases, answers):
        case["upstream"] = upstream
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    pathlib.Path(target).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        work(sys.argv[2], int(sys.argv[3]))
    else:
        main(sys.argv[1], sys.argv[2])
