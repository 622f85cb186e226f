"""The golden files never change: files of any release stay readable.

A new file is added to the list, and is never changed or removed:

    sha256sum NEW_FILE >> SHA256SUMS
"""

import hashlib
from pathlib import Path

HERE = Path(__file__).parent


def test_golden_files_never_change():
    lines = (HERE / "SHA256SUMS").read_text().splitlines()
    expected = {name: digest for digest, name in (line.split("  ") for line in lines)}
    actual = {
        path.relative_to(HERE).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in HERE.glob("*/**/*")
        if path.suffix in (".riegeli", ".array_record")
        or {"tfds_4_9_10", "policies", "sidecars_1"} & {*path.parts}
        if path.is_file()
    }
    assert actual == expected
