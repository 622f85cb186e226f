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

# Contrast of a black picture: the share of the usual one, and the grey levels.
_CONTRAST_SHARE, _MIN_CONTRAST = 0.1, 2.0
# A larger difference of two frames, in grey levels, is a change: the noise of a sensor is larger.
_EQUAL = 1.0
# Log error of transformed thumbnails: the gain of a faulty episode, the usual loss.
_FAULTY_GAIN, _USUAL_LOSS = -0.5, 0.3
# Limit of the deviation of a thumbnail element, in usual deviations; the least usual deviation.
_MAX_DEVIATION, _MIN_DEVIATION = 5.0, 0.1

_TURN_FUNCTIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "is mirrored": lambda thumbnails: thumbnails[:, :, ::-1],
    "is upside down": lambda thumbnails: thumbnails[:, ::-1, ::-1],
    "is upside down and mirrored": lambda thumbnails: thumbnails[:, ::-1],
}


def find_black(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes in which a camera shows nothing."""
    contrast = episodes.picture_array("contrast")
    usual_contrast = np.median(contrast, axis=(0, 2))[:, None]
    flags = (contrast < np.maximum(_CONTRAST_SHARE * usual_contrast, _MIN_CONTRAST)).astype(float)
    yield from _find_flagged(episodes, "camera black", flags, 0.2, "is black or of one colour")


def find_frozen(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes in which the pictures of a camera do not change while something moves."""
    changes = episodes.picture_array("changes")
    # The noise of a camera that does not show all motion.
    floor = np.nan_to_num(median(quantile(np.moveaxis(changes, 2, 0), 0.0)))
    flags = np.where(np.isnan(changes), np.nan, changes <= np.minimum(0.5 * floor, _EQUAL)[:, None])
    yield from _find_flagged(episodes, "camera frozen", flags, 0.25, "does not change")


def _find_flagged(
    episodes: MeasuredEpisodes, name: str, flags: np.ndarray, min_share: float, predicate: str
) -> Iterator[EpisodeFinding]:
    """Yields episodes in which unusually many pictures of a camera have a flag.

    Args:
      episodes: The episodes.
      name: The name of the check.
      flags: 0, 1 or NaN, of shape `[episodes, cameras, pairs]`.
      min_share: The least share of the pictures that is a fault.
      predicate: The meaning of a flag, as the predicate of a sentence about the camera.
    """
    shares = np.nan_to_num(mean(flags))
    sizes = shares / np.clip(2 * np.quantile(shares, 0.8, axis=0) + 0.1, min_share, 0.9)
    rows = episodes.picture_array("rows")
    for index, camera in np.argwhere(sizes > 1).tolist():
        text = (
            f"{episodes.cameras[camera]} {predicate} in {shares[index, camera]:.0%} of the pictures"
        )
        row = int(rows[index][flags[index, camera] == 1].min())
        episode = int(episodes.filmed[index])
        yield EpisodeFinding(episode, name, text, row, float(sizes[index, camera]))


def find_blurred(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes in which a camera is less sharp than usual."""
    sizes = deviations(-episodes.picture_array("sharpness"), 0.05) / 4.5
    for index, camera in np.argwhere(sizes > 1).tolist():
        episode, text = int(episodes.filmed[index]), f"{episodes.cameras[camera]} is blurred"
        yield EpisodeFinding(episode, "camera blurred", text, size=sizes[index, camera])


class _Thumbnails:
    """The normalized mean pictures of all episodes, and their deviations from usual pictures."""

    def __init__(self, episodes: MeasuredEpisodes) -> None:
        raw = episodes.picture_array("thumbnails")
        raw = raw - raw.mean((2, 3, 4), keepdims=True)
        self.all = raw / np.maximum(raw.std((2, 3, 4), keepdims=True), _MIN_CONTRAST)
        self._usual = np.median(self.all, axis=0)
        self._spread = 1.4826 * np.median(np.abs(self.all - self._usual), axis=0) + _MIN_DEVIATION

    def error(self, thumbnails: np.ndarray, camera: int) -> np.ndarray:
        """Returns the deviation of thumbnails from those usual for a camera, as a logarithm."""
        deviations = np.abs(thumbnails - self._usual[camera]) / self._spread[camera]
        return np.log((np.minimum(deviations, _MAX_DEVIATION) ** 2).mean((1, 2, 3)) + 1e-3)

    def errors_of(self, camera: int) -> np.ndarray:
        """Returns the `error` of all thumbnails of a camera."""
        return self.error(self.all[:, camera], camera)


def _find_improved(
    episodes: MeasuredEpisodes, name: str, losses: np.ndarray, text: str
) -> Iterator[EpisodeFinding]:
    """Yields episodes whose images become more usual by a transformation, unlike most episodes.

    Args:
      episodes: The episodes.
      name: The name of the check.
      losses: The log error of the transformed images of each episode, minus that of the originals.
      text: The finding in a sentence.
    """
    if not len(losses) or np.quantile(losses, 0.25) < _USUAL_LOSS:
        return  # The transformation hardly changes many images.
    sizes = np.minimum(deviations(-losses, 0.2) / 3, losses / _FAULTY_GAIN)
    for index in np.flatnonzero(sizes > 1).tolist():
        yield EpisodeFinding(int(episodes.filmed[index]), name, text, size=sizes[index])


def find_swapped(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes in which two cameras are exchanged."""
    thumbnails = _Thumbnails(episodes)
    for first, second in itertools.combinations(range(len(episodes.cameras)), 2):
        losses = thumbnails.error(thumbnails.all[:, first], second) - thumbnails.errors_of(first)
        losses += thumbnails.error(thumbnails.all[:, second], first) - thumbnails.errors_of(second)
        names = episodes.cameras[first], episodes.cameras[second]
        text = f"{names[0]} and {names[1]} are exchanged"
        yield from _find_improved(episodes, "cameras swapped", losses, text)


def find_turned(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes in which a camera is upside down or mirrored."""
    yield from _find_transformed(episodes, "camera turned", _TURN_FUNCTIONS)


def find_colours(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes in which red and blue of a camera are exchanged."""
    exchanged = {"has red and blue exchanged": lambda thumbnails: thumbnails[..., ::-1]}
    yield from _find_transformed(episodes, "camera colours", exchanged)


def _find_transformed(
    episodes: MeasuredEpisodes, name: str, changes: Mapping[str, Callable[[np.ndarray], np.ndarray]]
) -> Iterator[EpisodeFinding]:
    thumbnails = _Thumbnails(episodes)
    for camera, path in enumerate(episodes.cameras):
        for predicate, change in changes.items():
            losses = thumbnails.error(change(thumbnails.all[:, camera]), camera)
            losses = losses - thumbnails.errors_of(camera)
            yield from _find_improved(episodes, name, losses, f"{path} {predicate}")
