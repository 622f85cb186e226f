"""The reader on the page of the Riegeli format reads files of Google's C++."""

import importlib.util
import re
from pathlib import Path

import pytest

import riegeli

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"


def load_records():
    spec = importlib.util.spec_from_file_location("records", GOLDEN / "array_records.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.RECORDS


@pytest.fixture(scope="module")
def page():
    """The namespace of the block of Python that does not use this project."""
    text = (ROOT / "docs" / "riegeli_format.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    (reader,) = [block for block in blocks if "def read_transposed" in block]
    assert "riegeli" not in reader
    namespace = {}
    exec("import io\n" + reader, namespace)
    return namespace


@pytest.mark.parametrize("name", ["transposed", "transposed_few"])
def test_reader_of_the_page_decodes_transposed_chunks(page, name):
    file = (GOLDEN / "array_record_0_8_6" / f"{name}.array_record").read_bytes()
    records = []
    for chunk_type, num_records, data in page["chunks"](file):
        if chunk_type == "t":
            chunk_records = page["read_transposed"](data)
            assert len(chunk_records) == num_records
            records += chunk_records
    assert records == load_records()


def test_reader_of_the_page_lists_chunks_longer_than_their_data(page, tmp_path):
    path = tmp_path / "file"
    with riegeli.RecordWriter(path, options="uncompressed,transpose,chunk_size:1G") as writer:
        for count in (1, 65_448, 70_000, 200_000, 3):
            writer.write_records([b""] * count)
            writer.flush()
    chunks = list(page["chunks"](path.read_bytes()))
    assert [num_records for _, num_records, _ in chunks] == [0, 1, 65_448, 70_000, 200_000, 3]
