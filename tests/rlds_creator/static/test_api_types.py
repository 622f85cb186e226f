"""The types of the server's JSON, which `tsc` checks the pages against."""

import runpy
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "api_types.py"


def test_types_of_the_pages_are_those_of_the_server():
    tool = runpy.run_path(str(TOOL))
    written = tool["TARGET"].read_text()
    assert written == tool["declarations"](), "records changed: run tools/api_types.py"
    # Some of what pages rely on, so that a tool that writes little does not pass.
    assert "\n  num_steps: number;\n" in written
    assert '\nexport type Role = "annotator" | "owner" | "participant" | "viewer";\n' in written
    assert "\n  keep_internal?: boolean;\n" in written
