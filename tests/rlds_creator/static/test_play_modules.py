"""The modules of the player, which Node runs: frames, keys, gamepads, pointers."""

import base64
import json
import os
import pathlib
import shutil
import subprocess
from importlib import resources

import pytest

from rlds_creator import frames

_TESTS = pathlib.Path(__file__).with_name("play_modules.mjs")
_MODULES = (
    "format.js",
    "frames.js",
    "play/inputs.js",
    "play/keys.js",
    "play/gamepad.js",
    "play/pointer.js",
)


def test_modules_of_the_player_pass_their_tests_in_node(tmp_path: pathlib.Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node, which runs the modules without a browser")
    pages = tmp_path / "pages"
    for name in _MODULES:
        target = pages / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(resources.files("rlds_creator").joinpath("static", name).read_bytes())
    # Node needs this file to load modules; browsers learn it from the page.
    (pages / "package.json").write_text('{"type": "module"}')
    sent_frames = [
        frames.Frame(index=0, step=0, picture=b"", codec="png", is_first=True),
        frames.Frame(
            index=2**32 - 1,
            step=70_000,
            picture="Bild äß".encode(),
            codec="webp",
            action='{"arm": [0.5, -1], "tool": "é"}',
            reward=-0.5,
            total_reward=1024.25,
            applied_input=2**31,
            time=1_790_000_000.125,
            is_last=True,
            is_redrawn=True,
        ),
        frames.Frame(index=5, step=1, picture=b"x", codec="jpeg", action='["cut sho'),
    ]
    (tmp_path / "frames.json").write_text(json.dumps([_expected(frame) for frame in sent_frames]))
    result = subprocess.run(
        [node, "--test", str(_TESTS)],
        env={**os.environ, "PAGES": pages.as_uri(), "FRAMES": str(tmp_path / "frames.json")},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"# pass {_TESTS.read_text().count(chr(10) + 'test(')}" in result.stdout


def _expected(frame: frames.Frame) -> dict[str, object]:
    try:
        action = json.loads(frame.action) if frame.action else None
    except ValueError:
        action = frame.action
    return {
        "message": base64.b64encode(frame.encode()).decode(),
        "number": frame.index,
        "step": frame.step,
        "picture": frame.picture.decode(),
        "media_type": f"image/{frame.codec}",
        "action": action,
        "reward": frame.reward,
        "totalReward": frame.total_reward,
        "appliedInput": frame.applied_input,
        "time": frame.time,
        "isFirst": frame.is_first,
        "isLast": frame.is_last,
        "isRedrawn": frame.is_redrawn,
    }
