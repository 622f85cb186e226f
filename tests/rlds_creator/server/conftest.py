"""A server for all tests of a module."""

import pytest
from creator_server import Served


@pytest.fixture(autouse=True, scope="session")
def _with_testing_environments():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLDS_CREATOR_TESTING", "1")
        yield


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with Served(tmp_path_factory.mktemp("recordings")) as served:
        yield served
