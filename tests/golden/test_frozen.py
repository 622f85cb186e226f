"""The golden files are what they were: files of any release stay readable for ever.

A file is added to the list when it is made, and is never changed or taken away:

    sha256sum NEW_FILE >> SHA256SUMS
"""

import hashlib
from pathlib import Path

HERE = Path(__file__).parent


def test_golden_files_never_change():
    lines = (HERE / "SHA256SUMS").read_text().splitlines()
    promised = {name: digest for digest, name in (line.split("  ") for line in lines)}
    there = {
        path.relative_to(HERE).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in HERE.glob("*/**/*")
        if path.suffix in (".riegeli", ".array_record")
        or {"tfds_4_9_10", "policies", "sidecars_1"} & {*path.parts}
        if path.is_file()
    }
    assert there == promised
