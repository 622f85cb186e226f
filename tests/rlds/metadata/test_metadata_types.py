"""The names of the episode metadata."""

import pytest

from rlds import metadata
from rlds.metadata import metadata_types


@pytest.mark.parametrize(
    "name", ["agent_id", "environment_config", "episode_id", "experiment_id", "invalid"]
)
def test_constant_holds_its_name_in_lower_case(name: str) -> None:
    assert getattr(metadata, name.upper()) == name
    assert getattr(metadata_types, name.upper()) == name
