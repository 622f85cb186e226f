"""A server for all tests of a module."""

import pytest
from creator_server import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with Served(tmp_path_factory.mktemp("recordings")) as served:
        yield served
