"""Random patterns have the outputs of the published rlds and reverb.

Runs if the environment variable RLDS_PEER_PYTHON names a Python with rlds 0.1.8, dm-reverb 0.14 and
TensorFlow 2.15.
"""

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import interop
import pattern_cases
import pytest

from rlds.transformations import pattern
from rlds.transformations import structured_writer as sw

GOLDEN = Path(__file__).parents[1] / "golden" / "rlds"
PEER = os.environ.get("RLDS_PEER_PYTHON", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PEER, reason="RLDS_PEER_PYTHON names no Python with rlds and reverb"),
]


def ask(cases: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Returns the answers of the published packages to the cases."""
    questions, answers = folder / "cases.json", folder / "answers.json"
    questions.write_text(json.dumps({"cases": cases}), encoding="utf-8")
    maker = GOLDEN / "make_pattern_golden.py"
    # With PYTHONPATH, the rlds of this project could answer.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([PEER, maker, questions, answers], check=True, capture_output=True, env=env)
    answered_cases = json.loads(answers.read_text(encoding="utf-8"))["cases"]
    return [case["upstream"] for case in answered_cases]


def test_the_golden_file_has_the_answers_of_reverb(tmp_path):
    golden = json.loads((GOLDEN / "pattern_golden.json").read_text(encoding="utf-8"))["cases"]
    for case, answer in zip(golden, ask(golden, tmp_path)):
        assert answer == case["upstream"], case["id"]


def test_random_patterns_match_reverb(tmp_path):
    cases = {seed: pattern_cases.random_case(random.Random(seed)) for seed in interop.seeds()}
    num_outputs = 0
    for (seed, case), answer in zip(cases.items(), ask(list(cases.values()), tmp_path)):
        assert "error" not in answer, f"seed {seed}: {answer}"
        expected = pattern_cases.decode(answer["outputs"])
        assert pattern_cases.expected_outputs(case) == expected, f"seed {seed}, the model"
        world = pattern_cases.World(case)
        configs = [pattern_cases.config_of(config, world.spec, sw) for config in case["configs"]]
        episodes = world.nested() if seed % 2 else world.batched()
        outputs = pattern.pattern_map(episodes, configs, case["respect_episode_boundaries"])
        assert [pattern_cases.as_plain(output) for output in outputs] == expected, f"seed {seed}"
        num_outputs += len(expected)
    print(f"{len(cases)} cases with {num_outputs} outputs")
    assert num_outputs > len(cases)
