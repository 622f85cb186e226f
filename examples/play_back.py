"""Plays the actions of an episode back in time, as they were recorded.

    python examples/play_back.py out/streams --option rate=20

The robot of this example only says what it is told: put yours in its place.
"""

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np

import rlds.sources
from rlds.sources.rates import rate_in


def timed(times: np.ndarray, speed: float) -> Iterator[int]:
    """Yields the numbers of steps, each when it is due; times are in nanoseconds."""
    begin = time.monotonic_ns()
    for number, at in enumerate(((times - times[0]) / speed).astype(np.int64).tolist()):
        time.sleep(max(begin + at - time.monotonic_ns(), 0) / 1e9)
        yield number


def play(path: str, episode: int, send: Callable[[np.ndarray], None], **arguments: float) -> int:
    """Sends the actions of an episode; returns how many there were."""
    speed = arguments.pop("speed", 1.0)
    episodes = rlds.sources.open(path, **arguments)
    found = episodes[episode]
    number = found.num_steps - found.final_observation_known
    times = found.steps.get("timestamp")
    if times is None:
        rate = rate_in(episodes.metadata) or 10.0
        times = np.arange(number) * 1e9 / rate
    for step in timed(np.asarray(times[:number]), speed):
        send(found.steps["action"][step])
    return int(number)


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
    number = play(
        arguments.path,
        arguments.episode,
        lambda action: print(np.round(action, 2)),
        speed=arguments.speed,
        **options,
    )
    print(f"{number} actions")


if __name__ == "__main__":
    main()
