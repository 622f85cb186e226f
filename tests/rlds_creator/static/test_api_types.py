"""The types of the server's JSON, which `tsc` checks the pages against."""

import runpy
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "api_types.py"


def test_types_of_the_pages_equal_those_of_the_server():
    tool = runpy.run_path(str(TOOL))
    text = tool["TARGET"].read_text()
    assert text == tool["declarations"](), "records changed: run tools/api_types.py"
    # Some declarations that pages use, so that a tool that writes little fails.
    assert "\n  num_steps: number;\n" in text
    assert '\nexport type Role = "annotator" | "owner" | "participant" | "viewer";\n' in text
    assert "\n  keep_internal?: boolean;\n" in text
