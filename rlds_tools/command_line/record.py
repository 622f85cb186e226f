"""`rlds record`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import Any

import click

from rlds_tools.command_line.printing import prints_result, wants_progress
from rlds_tools.results import Result

EXAMPLES = """\b
Examples:
  rlds record CartPole-v1 -o logs/cartpole --episodes 100 --seed 7
  rlds record dm_control:cartpole/swingup -o logs/swingup --policy agents:act --video swingup.mp4
"""


def _size(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    if value is None:
        return None
    width, _, height = value.partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise click.BadParameter(f"{value!r} is not WIDTHxHEIGHT, such as 224x224.", ctx, param)
    return int(width), int(height)


def _camera(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    return value if value is None or not value.lstrip("-").isdecimal() else int(value)


@click.command(epilog=EXAMPLES)
@click.argument("environment", metavar="ENV")
@click.option("-o", "--output", metavar="DIR", required=True, help="The directory of the log.")
@click.option(
    "--episodes",
    type=click.IntRange(1),
    metavar="N",
    help="How many episodes to record; 10 by default, unless you give --steps.",
)
@click.option(
    "--steps",
    type=click.IntRange(2),
    metavar="N",
    help="How many steps the log gets at most; the last episode is truncated there.",
)
@click.option(
    "--policy",
    metavar="POLICY",
    default="random",
    show_default=True,
    help="random; constant:0, or constant:0.5,-1 with a number for each part of an action; or "
    "module:function, which is called with the observation, or with the timestep if that is what "
    "its argument is called. A class is called once to make the function.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31 - 1),
    metavar="N",
    help="The seed of the environment and of the policy. By default one is drawn, and recorded.",
)
@click.option(
    "--max-episode-steps",
    type=click.IntRange(1),
    metavar="N",
    help="After how many actions an episode is truncated.",
)
@click.option(
    "--render",
    is_flag=True,
    help="Record how the environment looks, as part of the observations: `render`.",
)
@click.option(
    "--camera",
    metavar="CAMERA",
    callback=_camera,
    help="The number or the name of the camera, in environments of MuJoCo.",
)
@click.option("--size", callback=_size, metavar="WIDTHxHEIGHT", help="The size of the frames.")
@click.option("--info", is_flag=True, help="Record the info that Gymnasium returns with each step.")
@click.option(
    "--metadata",
    metavar="KEY=VALUE",
    multiple=True,
    help="What to store about the log. Numbers, true, false, and all that is JSON are that; "
    "anything else is text. May be given several times.",
)
@click.option("--video", metavar="FILE.mp4", help="Write a video of the first episode.")
@click.option(
    "--encode",
    metavar="FIELD[=HOW]",
    multiple=True,
    help="Record a field of the observation, such as render, as video: h264 (by default), av1, or "
    "lossless. May be given several times.",
)
@prints_result
def command(metadata: Iterable[str], encode: Iterable[str], **options: Any) -> Result:
    """Play episodes in ENV, and record them into a log of EnvLogger.

    ENV is an identifier of Gymnasium (CartPole-v1, ALE/Breakout-v5), dm_control:DOMAIN/TASK, a
    small game called catch that needs nothing, or module:function, which returns an environment of
    dm_env or Gymnasium. A function with an argument `seed` is given the seed.

    If DIR has a log of ENV, the episodes are added to it. Ctrl-C ends the recording: all finished
    episodes are in the log.
    """
    from rlds_tools import recording

    # As `python -m` does: modules are found where the command is typed.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return recording.record(
        **options,
        metadata=dict(map(_pair, metadata)),
        encode=dict(map(_way, encode)),
        progress=wants_progress(),
    )


def _way(text: str) -> tuple[str, Any]:
    from envlogger import Video

    field, _, how = text.partition("=")
    try:
        return field, Video.called(how or "h264")
    except ValueError as error:
        raise click.UsageError(f"--encode {text}: {error}.") from error


def _pair(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.UsageError(f"--metadata takes KEY=VALUE, got {text!r}.")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
