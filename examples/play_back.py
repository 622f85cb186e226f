"""Replays the actions of an episode at the recorded times.

    python examples/play_back.py out/streams --option rate=20

The robot of this example prints its actions: replace it with yours.
"""

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np

import rlds.sources
from rlds.sources.rates import rate_in


def timed(times: np.ndarray, speed: float) -> Iterator[int]:
    """Yields the index of each step at its time; times are in nanoseconds."""
    begin = time.monotonic_ns()
    for index, offset in enumerate(((times - times[0]) / speed).astype(np.int64).tolist()):
        time.sleep(max(begin + offset - time.monotonic_ns(), 0) / 1e9)
        yield index


def play(
    path: str, episode_index: int, send: Callable[[np.ndarray], None], **arguments: float
) -> int:
    """Sends the actions of an episode; returns the number of actions."""
    speed = arguments.pop("speed", 1.0)
    episodes = rlds.sources.open(path, **arguments)
    episode = episodes[episode_index]
    num_actions = episode.num_steps - episode.final_observation_known
    times = episode.steps.get("timestamp")
    if times is None:
        rate = rate_in(episodes.metadata) or 10.0
        times = np.arange(num_actions) * 1e9 / rate
    for step in timed(np.asarray(times[:num_actions]), speed):
        send(episode.steps["action"][step])
    return int(num_actions)


def main() -> None:
    """Plays an episode."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path")
    parser.add_argument("--episode", type=int, default=0)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--option", action="append", default=[], metavar="NAME=NUMBER")
    arguments = parser.parse_args()
    options = {
        name: float(value) for name, _, value in (o.partition("=") for o in arguments.option)
    }
    num_actions = play(
        arguments.path,
        arguments.episode,
        lambda action: print(np.round(action, 2)),
        speed=arguments.speed,
        **options,
    )
    print(f"{num_actions} actions")


if __name__ == "__main__":
    main()
