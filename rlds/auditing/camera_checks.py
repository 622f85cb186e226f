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

# A picture is black below this share of the usual contrast, or below these grey levels.
_DARK, _LEAST_CONTRAST = 0.1, 2.0
# Grey levels by which equal frames of video may differ: less than the noise of a sensor.
_EQUAL = 1.0
# The gain in fit of transformed thumbnails, as a logarithm, and their usual loss.
_BETTER, _LOST = -0.5, 0.3
# Limit of the deviation of an element of a thumbnail, in usual ones; the least usual one.
_MOST_OFF, _LEAST_OFF = 5.0, 0.1

_TURNS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "is mirrored": lambda thumbnails: thumbnails[:, :, ::-1],
    "is upside down": lambda thumbnails: thumbnails[:, ::-1, ::-1],
    "is upside down and mirrored": lambda thumbnails: thumbnails[:, ::-1],
}


def black(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes in which a camera shows nothing."""
    contrast = measured.of_pictures("contrast")
    usual = np.median(contrast, axis=(0, 2))[:, None]
    flags = (contrast < np.maximum(_DARK * usual, _LEAST_CONTRAST)).astype(float)
    yield from _shares(measured, "camera black", flags, 0.2, "is black or of one colour")


def frozen(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes in which the pictures of a camera stay while something moves."""
    changes = measured.of_pictures("changes")
    # The smallest changes in most episodes: the noise of a camera that misses some motion.
    floor = np.nan_to_num(median(quantile(np.moveaxis(changes, 2, 0), 0.0)))
    flags = np.where(np.isnan(changes), np.nan, changes <= np.minimum(0.5 * floor, _EQUAL)[:, None])
    yield from _shares(measured, "camera frozen", flags, 0.25, "stays as it is")


def _shares(
    measured: MeasuredEpisodes, name: str, flags: np.ndarray, least: float, predicate: str
) -> Iterator[EpisodeFinding]:
    """Yields episodes in which a camera has a flag in more of its pictures than usual.

    Args:
      measured: The episodes.
      name: The name of the check.
      flags: 0, 1 or NaN, of shape `[episodes, cameras, pairs]`.
      least: The least part of the pictures that counts.
      predicate: The meaning of a flag, as the predicate of a sentence about the camera.
    """
    shares = np.nan_to_num(mean(flags))
    sizes = shares / np.clip(2 * np.quantile(shares, 0.8, axis=0) + 0.1, least, 0.9)
    rows = measured.of_pictures("rows")
    for index, camera in np.argwhere(sizes > 1).tolist():
        text = (
            f"{measured.cameras[camera]} {predicate} in {shares[index, camera]:.0%} of the pictures"
        )
        row = int(rows[index][flags[index, camera] == 1].min())
        episode = int(measured.filmed[index])
        yield EpisodeFinding(episode, name, text, row, float(sizes[index, camera]))


def blurred(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes in which a camera is less sharp than usual."""
    sizes = deviations(-measured.of_pictures("sharpness"), 0.05) / 4.5
    for index, camera in np.argwhere(sizes > 1).tolist():
        episode, text = int(measured.filmed[index]), f"{measured.cameras[camera]} is blurred"
        yield EpisodeFinding(episode, "camera blurred", text, size=sizes[index, camera])


class _Thumbnails:
    """The mean pictures of all episodes, normalized, and their deviations from usual ones."""

    def __init__(self, measured: MeasuredEpisodes) -> None:
        raw = measured.of_pictures("thumbnails")
        raw = raw - raw.mean((2, 3, 4), keepdims=True)
        self.all = raw / np.maximum(raw.std((2, 3, 4), keepdims=True), _LEAST_CONTRAST)
        self._usual = np.median(self.all, axis=0)
        self._spread = 1.4826 * np.median(np.abs(self.all - self._usual), axis=0) + _LEAST_OFF

    def error(self, thumbnails: np.ndarray, camera: int) -> np.ndarray:
        """Returns the deviation of thumbnails from the usual ones of a camera, as a logarithm."""
        deviations = np.abs(thumbnails - self._usual[camera]) / self._spread[camera]
        return np.log((np.minimum(deviations, _MOST_OFF) ** 2).mean((1, 2, 3)) + 1e-3)

    def own_error(self, camera: int) -> np.ndarray:
        """Returns the `error` of all thumbnails of a camera."""
        return self.error(self.all[:, camera], camera)


def _better(
    measured: MeasuredEpisodes, name: str, losses: np.ndarray, text: str
) -> Iterator[EpisodeFinding]:
    """Yields episodes whose images are more usual after a transformation that others do not need.

    Args:
      measured: The episodes.
      name: The name of the check.
      losses: The loss of the images of each episode under the transformation, as a logarithm.
      text: The finding, in a sentence about the transformation.
    """
    if not len(losses) or np.quantile(losses, 0.25) < _LOST:
        return  # Many images look as usual after the transformation, too.
    sizes = np.minimum(deviations(-losses, 0.2) / 3, losses / _BETTER)
    for index in np.flatnonzero(sizes > 1).tolist():
        yield EpisodeFinding(int(measured.filmed[index]), name, text, size=sizes[index])


def swapped(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes in which two cameras show what the other one usually shows."""
    thumbnails = _Thumbnails(measured)
    for first, second in itertools.combinations(range(len(measured.cameras)), 2):
        losses = thumbnails.error(thumbnails.all[:, first], second) - thumbnails.own_error(first)
        losses += thumbnails.error(thumbnails.all[:, second], first) - thumbnails.own_error(second)
        names = measured.cameras[first], measured.cameras[second]
        text = f"{names[0]} shows what {names[1]} usually does, and it that"
        yield from _better(measured, "cameras swapped", losses, text)


def turned(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes in which a camera is turned round or mirrored."""
    yield from _changed(measured, "camera turned", _TURNS)


def colours(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes in which a camera has red and blue exchanged."""
    exchanged = {"has red and blue exchanged": lambda thumbnails: thumbnails[..., ::-1]}
    yield from _changed(measured, "camera colours", exchanged)


def _changed(
    measured: MeasuredEpisodes, name: str, changes: Mapping[str, Callable[[np.ndarray], np.ndarray]]
) -> Iterator[EpisodeFinding]:
    thumbnails = _Thumbnails(measured)
    for camera, path in enumerate(measured.cameras):
        for predicate, change in changes.items():
            losses = thumbnails.error(change(thumbnails.all[:, camera]), camera)
            losses = losses - thumbnails.own_error(camera)
            yield from _better(measured, name, losses, f"{path} {predicate}")
