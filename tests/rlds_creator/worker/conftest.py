"""The environment for tests is there."""

from collections.abc import Iterator

import pytest

from rlds_creator.environments import families


@pytest.fixture(autouse=True)
def _drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RLDS_CREATOR_TESTING", "1")
    families.cache_clear()
    yield
    families.cache_clear()
