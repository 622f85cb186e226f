"""Charts as inline SVG, whose colors come from the style sheet of the page.

A drawing is stretched to the width of the page, so its labels are HTML next to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rlds_tools.markup import Markup, join, tag

__all__ = ["curves", "density", "histogram", "number_text", "scatter", "sparkline"]

_WIDTH, _HEIGHT = 300, 80
_BINS, _MAX_EXACT_BARS = 40, 20
# The horizontal resolution of curves.
_MAX_PIXEL_COLUMNS = 300
# The fraction of values in each tail that histograms leave out.
_TAIL = 0.001
_DENSITY_CELLS = (64, 40)
_DENSITY_LEVELS = 6
_MAX_POINTS = 1500


def number_text(value: float) -> str:
    """Formats a number in a few characters.

    >>> number_text(12345.678), number_text(0.5), number_text(-0.0), number_text(1e-9)
    ('12,346', '0.5', '0', '1e-09')
    """
    if not np.isfinite(value):
        return str(float(value))
    text = f"{value:,.0f}" if abs(value) >= 1000 and abs(value) < 1e9 else f"{value:.4g}"
    return "0" if text == "-0" else text


def _svg(label: str, *content: Markup, height: int = _HEIGHT, class_: str = "") -> Markup:
    return tag(
        "svg",
        *content,
        viewBox=f"0 0 {_WIDTH} {height}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
        class_=f"chart {class_}".strip(),
    )


def _axis(*texts: str) -> Markup:
    return tag("div", *(tag("span", text) for text in texts), class_="axis")


def histogram(
    values: np.ndarray, title: str, *, small: bool = False, span: tuple[float, float] | None = None
) -> Markup:
    """Draws a histogram, with the median, and the range of the inner 90 %.

    Args:
      values: The numbers; a note below counts numbers that are not finite.
      title: The name of the values, as the text alternative.
      small: Whether to draw only bars.
      span: The range of the axis, to share it with other histograms.
    """
    values = np.asarray(values, np.float64)
    num_values, values = len(values), values[np.isfinite(values)]
    if not len(values):
        return tag("p", "no values", class_="quiet")
    low, q05, median, q95, high = np.quantile(values, [_TAIL, 0.05, 0.5, 0.95, 1 - _TAIL])
    unique = np.unique(values)
    if len(unique) <= _MAX_EXACT_BARS or len(values) < 1 / _TAIL:
        low, high = unique[0], unique[-1]
    outside = int(np.count_nonzero((values < low) | (values > high)))
    if span is None:
        counts, axis_min, axis_max = _count_bins(values, unique, low, high)
    else:
        low, high = axis_min, axis_max = span
        counts = np.histogram(values, _BINS, span)[0]
    bars = tag("path", d=_bars(counts, _HEIGHT), class_="bars")
    label = (
        f"{title}: {number_text(values.min())} to {number_text(values.max())}, median "
        f"{number_text(median)}, 90 % from {number_text(q05)} to {number_text(q95)}"
    )
    if small:
        return join(_svg(label, bars, height=_HEIGHT), _axis(number_text(low), number_text(high)))
    scale = _WIDTH / max(axis_max - axis_min, 1e-300)
    band = tag(
        "rect",
        x=_coordinate((q05 - axis_min) * scale),
        y=0,
        width=_coordinate(max((q95 - q05) * scale, 0.5)),
        height=_HEIGHT,
        class_="band",
    )
    x = _coordinate((median - axis_min) * scale)
    middle = tag("line", x1=x, x2=x, y1=0, y2=_HEIGHT, class_="median")
    note = f"median {number_text(median)}" + (f" · {outside:,} outside" if outside else "")
    if len(values) < num_values:
        note += f" · {num_values - len(values):,} not finite"
    return join(_svg(label, band, bars, middle), _axis(number_text(low), note, number_text(high)))


def sparkline(values: np.ndarray, title: str) -> Markup:
    """Draws a tiny histogram."""
    values = values[np.isfinite(values)]
    if not len(values):
        return Markup("")
    low, high = np.quantile(values, [_TAIL, 1 - _TAIL])
    counts, _, _ = _count_bins(values, np.unique(values), low, high, bins=24)
    bars = tag("path", d=_bars(counts, 24), class_="bars")
    return _svg(f"Histogram of {title}", bars, height=24, class_="spark")


def _count_bins(
    values: np.ndarray, unique: np.ndarray, low: float, high: float, bins: int = _BINS
) -> tuple[np.ndarray, float, float]:
    """Returns the counts of a histogram, and the bounds of its bins."""
    if len(unique) == 1:
        return np.array([0, len(values), 0]), low - 1, low + 1
    are_integers = len(unique) <= _MAX_EXACT_BARS and np.all(unique == np.round(unique))
    if are_integers and high - low < 2 * _BINS:  # Each bin holds one integer.
        edges = np.arange(low - 0.5, high + 1)
        return np.histogram(values, edges)[0], edges[0], edges[-1]
    with np.errstate(over="ignore"):
        edges = np.linspace(low, high, bins + 1)
    if not np.all(np.diff(edges) > 0):  # Bounds coincide: no float is between.
        return np.array([len(values)]), low, high
    return np.histogram(values, edges)[0], low, high


def _bars(counts: np.ndarray, height: float) -> str:
    width = _WIDTH / len(counts)
    tops = counts * ((height - 2) / max(counts.max(initial=0), 1))
    gap = width * 0.12
    # Bars have a minimum height, so that rare values are visible.
    return "".join(
        f"M{_coordinate(i * width + gap / 2)} {_coordinate(height)}v{_coordinate(-max(top, 1.5))}"
        f"h{_coordinate(width - gap)}v{_coordinate(max(top, 1.5))}z"
        for i, top in enumerate(tops)
        if top > 0
    )


def curves(columns: Sequence[np.ndarray], title: str, *, steps: bool = False) -> tuple[Markup, str]:
    """Draws numbers over the steps of an episode, on a common axis.

    Args:
      columns: The values of each curve.
      title: The name of the values.
      steps: Whether to draw steps instead of lines, for categories.

    Returns:
      The drawing, and the text of its range.
    """
    finite = [column[np.isfinite(column)] for column in columns]
    low = min((column.min() for column in finite if len(column)), default=0.0)
    high = max((column.max() for column in finite if len(column)), default=0.0)
    scale = (_HEIGHT - 8) / (high - low) if high > low else 0.0
    middle = 0.0 if high > low else _HEIGHT / 2
    paths = []
    for index, column in enumerate(columns):
        x, y = _downsample(column)
        with np.errstate(invalid="ignore", over="ignore"):
            y = _HEIGHT - 4 - middle - (y - low) * scale
        paths.append(tag("path", d=_line(x, y, steps), class_=f"curve c{index}"))
    if low < 0 < high:
        zero = _coordinate(_HEIGHT - 4 - (0 - low) * scale)
        paths.insert(0, tag("line", x1=0, x2=_WIDTH, y1=zero, y2=zero, class_="zero"))
    cursor = tag("line", x1=0, x2=0, y1=0, y2=_HEIGHT, class_="cursor")
    label = f"{title} over the steps of the episode, from {number_text(low)} to {number_text(high)}"
    return _svg(label, *paths, cursor), f"{number_text(low)} to {number_text(high)}"


def _downsample(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Reduces a curve to the minimum and the maximum in each column of pixels."""
    length = len(column)
    x = np.arange(length) * (_WIDTH / max(length - 1, 1))
    if length <= 2 * _MAX_PIXEL_COLUMNS:
        return x, column
    chunks = np.array_split(np.arange(length), _MAX_PIXEL_COLUMNS)
    # Infinite values would hide finite values.
    low, high = (np.where(np.isfinite(column), column, none) for none in (np.inf, -np.inf))
    pairs = [sorted((rows[np.argmin(low[rows])], rows[np.argmax(high[rows])])) for rows in chunks]
    kept_rows = np.array(pairs).reshape(-1)
    return x[kept_rows], column[kept_rows]


def _line(x: np.ndarray, y: np.ndarray, steps: bool) -> str:
    commands, is_pen_down = [], False
    for position, value in zip(x, y):
        if not np.isfinite(value):
            is_pen_down = False
            continue
        point = f"{_coordinate(position)} {_coordinate(value)}"
        if not is_pen_down:
            commands.append(f"M{point}h0")  # A line of length 0 shows a single point.
        elif steps:
            commands.append(f"H{_coordinate(position)}V{_coordinate(value)}")
        else:
            commands.append(f"L{point}")
        is_pen_down = True
    return "".join(commands)


def scatter(groups: Iterable[tuple[str, np.ndarray, np.ndarray]], title: str) -> Markup:
    """Draws a scatter plot, with a color for each group.

    Args:
      groups: The names of groups, which are classes of the style sheet, and the points as x and y.
      title: The names of the axes.
    """
    groups = [(name, x, y) for name, x, y in groups if len(x)]
    if not groups:
        return Markup("")
    all_x, all_y = (np.concatenate([group[i] for group in groups]) for i in (1, 2))
    stride = -(-len(all_x) // _MAX_POINTS)
    paths = []
    for name, x, y in groups:
        points = zip(_rescale(x[::stride], all_x, _WIDTH), _rescale(y[::stride], all_y, _HEIGHT))
        d = "".join(f"M{_coordinate(a)} {_coordinate(_HEIGHT - b)}h0" for a, b in points)
        paths.append(tag("path", d=d, class_=f"points {name}"))
    note = f"length · 1 of {stride} episodes" if stride > 1 else "length"
    axis = _axis(number_text(all_x.min()), note, number_text(all_x.max()))
    return join(_svg(title, *paths, class_="tall"), axis)


def _rescale(values: np.ndarray, reference: np.ndarray, size: float) -> np.ndarray:
    low, high = reference.min(), reference.max()
    margin = size * 0.04
    if high <= low:
        return np.full(len(values), size / 2)
    return np.asarray(margin + (values - low) * ((size - 2 * margin) / (high - low)))


def density(points: np.ndarray, title: str) -> Markup:
    """Draws the density of points in a plane, in a few levels.

    Args:
      points: The points, of shape `[points, 2]`.
      title: The names of the axes.
    """
    low, high = np.quantile(points, [_TAIL, 1 - _TAIL], axis=0)
    high = np.where(high > low, high, low + 1)
    spans = [(low[i], high[i]) for i in (0, 1)]
    counts, _, _ = np.histogram2d(points[:, 0], points[:, 1], bins=_DENSITY_CELLS, range=spans)
    highest = max(counts.max(), 1)
    level = np.ceil(np.log1p(counts) / np.log1p(highest) * _DENSITY_LEVELS).astype(int)
    width, height = _WIDTH / _DENSITY_CELLS[0], 2 * _HEIGHT / _DENSITY_CELLS[1]
    paths = []
    for shown_level in range(1, _DENSITY_LEVELS + 1):
        d = "".join(
            f"M{_coordinate(x * width)} {_coordinate((_DENSITY_CELLS[1] - 1 - y) * height)}"
            f"h{_coordinate(width)}v{_coordinate(height)}h{_coordinate(-width)}z"
            for x, y in zip(*np.nonzero(level == shown_level))
        )
        paths.append(tag("path", d=d, class_=f"d{shown_level}"))
    return _svg(title, *paths, height=2 * _HEIGHT, class_="tall")


def _coordinate(value: float) -> str:
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text
