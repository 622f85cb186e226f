"""The second pass, with the plain Python core, skips tests that do not use it or use both."""

import os

collect_ignore = (
    [
        *("records/examples", "tensorflow"),
        *("test_options.py", "test_public_names.py", "test_record_position.py", "test_twins.py"),
    ]
    if os.environ.get("RIEGELI_IMPLEMENTATION") == "python"
    else []
)
