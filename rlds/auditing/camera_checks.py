"""Checks of cameras: the images of an episode against other episodes of the same camera."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from rlds.auditing.findings import (
    EpisodeFinding,
    MeasuredEpisodes,
    deviations,
    mean,
    median,
    quantile,
)

__all__ = ["black", "blurred", "colours", "frozen", "swapped", "turned"]

# The part of the usual contrast, and the grey levels, under which a picture shows nothing.
_DARK, _LEAST_CONTRAST = 0.1, 2.0
# Grey levels by which equal frames of video may differ: less than the noise of a sensor.
_EQUAL = 1.0
# The gain in fit of transformed thumbnails, as a logarithm, and their usual loss.
_BETTER, _LOST = -0.5, 0.3
# No element of a thumbnail is off by more deviations; the least deviation.
_MOST_OFF, _LEAST_OFF = 5.0, 0.1

_TURNS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "is mirrored": lambda thumbnails: thumbnails[:, :, ::-1],
    "is upside down": lambda thumbnails: thumbnails[:, ::-1, ::-1],
    "is upside down and mirrored": lambda thumbnails: thumbnails[:, ::-1],
}


def black(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes in which a camera shows nothing."""
    contrast = given.of_pictures("contrast")
    usual = np.median(contrast, axis=(0, 2))[:, None]
    flags = contrast < np.maximum(_DARK * usual, _LEAST_CONTRAST)
    yield from _shares(given, "camera black", flags.astype(float), 0.2, "is black or of one colour")


def frozen(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes in which the pictures of a camera stay while something moves."""
    changes = given.of_pictures("changes")
    # The smallest changes in most episodes: noise, if a camera does not see all that moves.
    floor = np.nan_to_num(median(quantile(np.moveaxis(changes, 2, 0), 0.0)))
    flags = np.where(np.isnan(changes), np.nan, changes <= np.minimum(0.5 * floor, _EQUAL)[:, None])
    yield from _shares(given, "camera frozen", flags, 0.25, "stays as it is")


def _shares(
    given: MeasuredEpisodes, name: str, flags: np.ndarray, least: float, text: str
) -> Iterator[EpisodeFinding]:
    """Yields episodes in which a camera has a flag in more of its pictures than usual.

    Args:
      given: The episodes.
      name: The name of the check.
      flags: 0, 1 or NaN, of shape `[episodes, cameras, pairs]`.
      least: The least part of the pictures that counts.
      text: The meaning of a flag, as the predicate of a sentence about the camera.
    """
    shares = np.nan_to_num(mean(flags))
    sizes = shares / np.clip(2 * np.quantile(shares, 0.8, axis=0) + 0.1, least, 0.9)
    rows = given.of_pictures("rows")
    for place, camera in np.argwhere(sizes > 1).tolist():
        said = f"{given.cameras[camera]} {text} in {shares[place, camera]:.0%} of the pictures"
        row = int(rows[place][flags[place, camera] == 1].min())
        number = int(given.filmed[place])
        yield EpisodeFinding(number, name, said, row, float(sizes[place, camera]))


def blurred(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes in which a camera is less sharp than usual."""
    far = deviations(-given.of_pictures("sharpness"), 0.05) / 4.5
    for place, camera in np.argwhere(far > 1).tolist():
        number, said = int(given.filmed[place]), f"{given.cameras[camera]} is blurred"
        yield EpisodeFinding(number, "camera blurred", said, size=far[place, camera])


class _Thumbnails:
    """The mean pictures of all episodes, of any brightness, and how far they are from usual."""

    def __init__(self, given: MeasuredEpisodes) -> None:
        raw = given.of_pictures("thumbnails")
        raw = raw - raw.mean((2, 3, 4), keepdims=True)
        self.all = raw / np.maximum(raw.std((2, 3, 4), keepdims=True), _LEAST_CONTRAST)
        self._usual = np.median(self.all, axis=0)
        self._spread = 1.4826 * np.median(np.abs(self.all - self._usual), axis=0) + _LEAST_OFF

    def off(self, thumbnails: np.ndarray, camera: int) -> np.ndarray:
        """Returns the deviation of thumbnails from the usual ones of a camera, as a logarithm."""
        off = np.abs(thumbnails - self._usual[camera]) / self._spread[camera]
        return np.log((np.minimum(off, _MOST_OFF) ** 2).mean((1, 2, 3)) + 1e-3)

    def own(self, camera: int) -> np.ndarray:
        """Returns `off` of all thumbnails of a camera."""
        return self.off(self.all[:, camera], camera)


def _better(
    given: MeasuredEpisodes, name: str, lost: np.ndarray, text: str
) -> Iterator[EpisodeFinding]:
    """Yields episodes whose images are more usual after a transformation that others do not need.

    Args:
      given: The episodes.
      name: The name of the check.
      lost: The loss of the images of each episode under the transformation, as a logarithm.
      text: The finding, in a sentence about the transformation.
    """
    if not len(lost) or np.quantile(lost, 0.25) < _LOST:
        return  # Most pictures do not tell.
    far = np.minimum(deviations(-lost, 0.2) / 3, lost / _BETTER)
    for place in np.flatnonzero(far > 1).tolist():
        yield EpisodeFinding(int(given.filmed[place]), name, text, size=far[place])


def swapped(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes in which two cameras show what the other one usually shows."""
    thumbnails = _Thumbnails(given)
    for one, other in itertools.combinations(range(len(given.cameras)), 2):
        lost = thumbnails.off(thumbnails.all[:, one], other) - thumbnails.own(one)
        lost += thumbnails.off(thumbnails.all[:, other], one) - thumbnails.own(other)
        text = f"{given.cameras[one]} shows what {given.cameras[other]} usually does, and it that"
        yield from _better(given, "cameras swapped", lost, text)


def turned(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes in which a camera is turned round or mirrored."""
    yield from _changed(given, "camera turned", _TURNS)


def colours(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes in which a camera has red and blue exchanged."""
    exchanged = {"has red and blue exchanged": lambda thumbnails: thumbnails[..., ::-1]}
    yield from _changed(given, "camera colours", exchanged)


def _changed(
    given: MeasuredEpisodes, name: str, changes: Mapping[str, Callable[[np.ndarray], np.ndarray]]
) -> Iterator[EpisodeFinding]:
    thumbnails = _Thumbnails(given)
    for camera, path in enumerate(given.cameras):
        for how, change in changes.items():
            lost = thumbnails.off(change(thumbnails.all[:, camera]), camera)
            lost = lost - thumbnails.own(camera)
            yield from _better(given, name, lost, f"{path} {how}")
