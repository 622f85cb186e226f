"""`rlds record`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import Any

import click

from rlds_tools.command_line.printing import Command, option, prints_result, wants_progress
from rlds_tools.results import Result


def _size(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    if value is None:
        return None
    width, _, height = value.partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise click.BadParameter(
            f"got {value!r}, expected WIDTHxHEIGHT, such as 224x224.", ctx, param
        )
    return int(width), int(height)


def _camera(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    return value if value is None or not value.lstrip("-").isdecimal() else int(value)


@click.command(cls=Command)
@click.argument("environment", metavar="ENV")
@option("-o --output DIR", "Folder of the log.", required=True)
@option(
    "--episodes N",
    "Number of episodes. Default: 10, unless you give --steps.",
    type=click.IntRange(1),
)
@option(
    "--steps N",
    "Maximum number of steps in the log; the last episode is truncated there.",
    type=click.IntRange(2),
)
@option(
    "--policy POLICY",
    "random; constant:0, or constant:0.5,-1 with a number for each dimension of the action; or "
    "module:function, a function of the observation, or of the timestep if its argument has that "
    "name. A class is instantiated once.",
    default="random",
    show_default=True,
)
@option(
    "--seed N",
    "Seed of the environment and of the policy. Default: a random seed, which is recorded.",
    type=click.IntRange(0, 2**31 - 1),
)
@option(
    "--max-episode-steps N",
    "Number of actions after which an episode is truncated.",
    type=click.IntRange(1),
)
@option("--render", "Record rendered frames as the field `render` of the observation.")
@option(
    "--camera CAMERA", "Index or name of the camera, for MuJoCo environments.", callback=_camera
)
@option("--size WIDTHxHEIGHT", "Size of the frames.", callback=_size)
@option("--info", "Record the info that Gymnasium returns with each step.")
@option(
    "--metadata KEY=VALUE...", "Metadata of the log. JSON values are parsed; other values are text."
)
@option("--video FILE.mp4", "Write a video of the first episode.")
@option(
    "--encode FIELD[=ENCODING]...",
    "Store a field of the observation, such as render, as video: h264 (default), av1, or lossless.",
)
@prints_result
def command(metadata: Iterable[str], encode: Iterable[str], **options: Any) -> Result:
    """Record episodes of ENV into an EnvLogger log.

    ENV is a Gymnasium id (CartPole-v1, ALE/Breakout-v5), dm_control:DOMAIN/TASK, catch (a small
    game without dependencies), or module:function, a function that returns a dm_env or Gymnasium
    environment. A function with an argument `seed` gets the seed.

    If DIR holds a log of ENV, the new episodes are appended. Ctrl-C ends the recording, and keeps
    all finished episodes.

    Examples:
      rlds record CartPole-v1 -o logs/cartpole --episodes 100 --seed 7
      rlds record dm_control:cartpole/swingup -o logs/swingup --policy agents:act --video run.mp4
    """
    from rlds_tools import recording

    # Makes the modules of the working directory importable, like `python -m`.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return recording.record(
        **options,
        metadata=dict(map(_parse_pair, metadata)),
        encode=dict(map(_parse_encoding, encode)),
        progress=wants_progress(),
    )


def _parse_encoding(text: str) -> tuple[str, Any]:
    from envlogger import Video

    field, _, encoding = text.partition("=")
    try:
        return field, Video.from_name(encoding or "h264")
    except ValueError as error:
        raise click.UsageError(f"--encode {text}: {error}.") from error


def _parse_pair(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.UsageError(f"--metadata: got {text!r}, expected KEY=VALUE.")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
