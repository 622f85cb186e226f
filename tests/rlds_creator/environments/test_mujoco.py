"""Robots that MuJoCo simulates and draws. The pictures are small: software rendering is slow."""

import copy
import os
import subprocess
import sys

import numpy as np
import pytest

from rlds_creator import Inputs, environments
from rlds_creator.environments.mujoco_pictures import FREE, MuJoCoPictures

pytest.importorskip("mujoco")
pytest.importorskip("dm_control")
pytestmark = pytest.mark.slow

SIZE = {"width": 96, "height": 64}


needs_egl = pytest.mark.skipif(
    os.environ.get("MUJOCO_GL") != "egl", reason="test_all_tests_pass_in_a_process_with_egl does it"
)


def test_all_tests_pass_in_a_process_with_egl(tmp_path):
    """Elsewhere MuJoCo may have been imported already, without OpenGL."""
    arguments = ["-q", "-p", "no:cacheprovider", "-k", "not process", __file__]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        env={
            **os.environ,
            "MUJOCO_GL": "egl",
            "PYOPENGL_PLATFORM": "egl",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        cwd=tmp_path,  # MuJoCo leaves a log there.
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "passed" in result.stdout
    assert "skipped" not in result.stdout


def play(playable, names, seed=7):
    playable.seed(seed)
    timesteps = [playable.environment.reset()]
    copies = copy.deepcopy(timesteps)
    for name in names:
        timesteps.append(playable.environment.step(playable.action(Inputs({name: 1.0}, [name]))))
        copies.append(copy.deepcopy(timesteps[-1]))
    np.testing.assert_equal(timesteps, copies)  # Later steps do not change an observation.
    return timesteps


@pytest.mark.parametrize(
    ("name", "id", "cameras"),
    [
        ("mujoco", "HalfCheetah-v5", ["track", FREE]),
        ("dm_control", "cartpole/swingup", ["fixed", "lookatcart", FREE]),
    ],
)
@needs_egl
def test_robots_are_played_and_drawn(name, id, cameras):
    playable = environments.make(name, {"id": id, **SIZE})
    keys = ["ArrowLeft", "ArrowRight", "ArrowLeft"]
    np.testing.assert_equal(play(playable, keys), play(playable, keys))
    with pytest.raises(AssertionError):
        np.testing.assert_equal(play(playable, keys), play(playable, keys, seed=8))
    assert playable.cameras == cameras
    pictures = [playable.render(camera) for camera in range(len(cameras))]
    pictures.append(playable.render(0, is_draft=True))
    for picture in pictures:
        assert (picture.shape, picture.dtype) == ((64, 96, 3), np.uint8)
        assert np.ptp(picture)
    assert (pictures[0] != pictures[1]).mean() > 0.05
    # A draft shows the same, except for shadows and edges.
    assert (pictures[0] != pictures[-1]).any()
    assert np.abs(pictures[0].astype(int) - pictures[-1]).mean() < 25
    assert (playable.render(0) == pictures[0]).all()
    assert playable.metadata()["versions"]["mujoco"]
    playable.close()


@needs_egl
def test_controls_have_the_names_of_the_actuators():
    playable = environments.make("dm_control", {"id": "reacher/easy", **SIZE})
    assert playable.controls[0].does == "shoulder \N{MINUS SIGN}"
    playable.close()


class Blank(MuJoCoPictures):
    """Pictures of which the first one is blank."""

    num_drawn = 0

    def _draw(self, camera, is_draft):
        self.num_drawn += 1
        picture = super()._draw(camera, is_draft)
        return picture * (self.num_drawn > 1)


@needs_egl
def test_blank_first_picture_is_drawn_again():
    import mujoco

    model = mujoco.MjModel.from_xml_string(
        '<mujoco><worldbody><light pos="0 0 3"/><geom size="1"/></worldbody></mujoco>'
    )
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    pictures = Blank(lambda: (model, data), 32, 32)
    assert pictures.cameras == [FREE]
    assert np.ptp(pictures.draw(0))
    assert pictures.num_drawn == 2
    pictures.draw(0)
    assert pictures.num_drawn == 3
    pictures.close()


@needs_egl
def test_pictures_show_the_ground_of_the_current_episode():
    playable = environments.make("dm_control", {"id": "quadruped/escape", **SIZE})
    free = len(playable.cameras) - 1
    play(playable, [], seed=1)
    before = playable.render(free)
    play(playable, [], seed=2)
    other = playable.render(free)
    play(playable, [], seed=1)
    assert (before != other).mean() > 0.05
    assert (before != playable.render(free)).mean() < 0.01
    playable.close()
