"""Records that threads read."""

import importlib.util
import sys
from types import ModuleType

import msgspec
import pytest

from rlds_creator import model
from rlds_creator.store import records


@pytest.mark.parametrize("module", [model, records])
def test_record_fields_are_resolved_before_threads_read(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """msgspec crashes the process if two threads resolve the fields of one class."""
    spec = importlib.util.spec_from_file_location("again", module.__file__)
    assert spec is not None
    assert spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "again", fresh)
    spec.loader.exec_module(fresh)
    classes = [each for each in vars(fresh).values() if getattr(each, "__module__", "") == "again"]
    classes = [each for each in classes if hasattr(each, "__struct_fields__")]
    assert len(classes) > 5

    class Unknown(msgspec.Struct):
        field: int

    for each in [Unknown, *classes]:
        each.__annotations__ = {"field": "Missing"}  # msgspec would read these.
    for each in classes:
        msgspec.json.Decoder(each)
    with pytest.raises(NameError):
        msgspec.json.Decoder(Unknown)
