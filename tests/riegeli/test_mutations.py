"""Mutations of intact files: inputs of past failures in fuzzing, and new ones in each run."""

from pathlib import Path

import fuzz_targets
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

INPUTS = Path(__file__).parent / "fuzz_inputs"


@pytest.fixture(autouse=True, scope="module")
def low_limits():
    with fuzz_targets.low_limits():
        yield


@pytest.fixture(autouse=True)
def compiled_core():
    pytest.importorskip("riegeli._compiled")


@pytest.mark.parametrize("target", fuzz_targets.TARGETS)
@settings(max_examples=4 * settings().max_examples)
@given(st.binary(min_size=100, max_size=1000))
def test_no_mutation_breaks_a_fuzz_target(target, data):
    fuzz_targets.TARGETS[target](data)


@pytest.mark.parametrize("target", fuzz_targets.TARGETS)
def test_inputs_of_past_failures_break_no_fuzz_target(target):
    # A line is an input in hex, or begins with # and tells the failure of the next input.
    lines = (INPUTS / f"{target}.txt").read_text().splitlines()
    inputs = [bytes.fromhex(line) for line in lines if not line.startswith("#")]
    assert inputs
    for data in inputs:
        fuzz_targets.TARGETS[target](data)
