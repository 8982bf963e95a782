"""Elements of SVG, axes with ticks, and charts with two axes.

Colours are those of the page's style sheet, by class, so that a chart has a light and a dark form. Text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, HEIGHT = 360.0, 216.0
"""Size of a small chart; its text is 11 units high."""


def element(name: str, *children: object, **attributes: object) -> Markup:
    """Return an element; children that are no `Markup` are escaped, and attributes that are None are skipped.

    Parameters
    ----------
    name : str
        Name of the element.
    *children : object
        Elements and text.
    **attributes : object
        ``class_`` is ``class``, other underscores are hyphens.
    """
    parts = [
        f' {key.rstrip("_").replace("_", "-")}="{escape(number(value))}"'
        for key, value in attributes.items()
        if value is not None
    ]
    inside = Markup("").join(escape(child) for child in children)
    # All names and keys come from this package.
    return Markup(f"<{name}{''.join(parts)}>{inside}</{name}>")  # noqa: S704


def number(value: object) -> object:
    """Return a float as text with two decimals, and other values unchanged."""
    if isinstance(value, float):
        text = f"{value:.2f}".rstrip("0").rstrip(".")
        return "0" if text == "-0" else text
    return value


def path(points: Iterable[tuple[float, float]]) -> str:
    """Return the data of a path through points."""
    return "M" + "L".join(f"{number(float(x))} {number(float(y))}" for x, y in points)


@dataclass(frozen=True)
class Axis:
    """A range of numbers and its place in a chart.

    Parameters
    ----------
    low, high : float
        The range.
    start, end : float
        Coordinates of `low` and `high`.
    log : bool, default False
        Whether the scale is logarithmic.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    @classmethod
    def around(
        cls, values: Sequence[float], start: float, end: float, *, log: bool = False, zero: bool = False
    ) -> Axis:
        """Return an axis with a margin around values; `log` and `zero` are False by default, `zero` starts at 0."""
        low, high = (min(values), max(values)) if len(values) else (0.0, 1.0)
        if log and low > 0:
            room = (high / low) ** 0.04 if high > low else 1.5
            return cls(low / room, high * room, start, end, True)
        low = min(low, 0.0) if zero else low
        room = 0.05 * (high - low) or 0.5 * abs(high) or 0.5
        return cls(low if zero else low - room, high + room, start, end)

    def __call__(self, value: float) -> float:
        """Return the coordinate of a value."""
        if self.log:
            share = math.log(max(value, 1e-300) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Return about `count` (default 5) round numbers within the range."""
        if self.log:
            return self._decades(count) or Axis(self.low, self.high, 0, 1).ticks(count)
        step = _round_step((self.high - self.low) / count)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(i * step, 12 - math.floor(math.log10(step))) for i in range(first, last + 1)]

    def _decades(self, count: int) -> list[float]:
        low, high = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        if high - low + 1 >= 3:
            every = -(-(high - low + 1) // count)
            return [10.0**i for i in range(low, high + 1, every)]
        fine = [m * 10.0**i for i in range(low - 1, high + 1) for m in (1, 2, 5)]
        within = [value for value in fine if self.low <= value <= self.high]
        return within if len(within) >= 2 else []


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * (1 - 1e-9))


def tick_text(value: float) -> str:
    """Return a number at a tick."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:,.6g}".replace(",", "\u202f").replace("-", "\u2212")
    mantissa, exponent = f"{value:.3e}".split("e")
    digits = mantissa.rstrip("0").rstrip(".").replace("-", "\u2212")
    power = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{power}" if digits == "1" else f"{digits}·10{power}"


class Chart:
    """A drawing with two axes.

    Parameters
    ----------
    title : str
        Name of the chart, for screen readers.
    description : str
        Content of the chart, for screen readers.
    x_label : str
        Label of the x axis.
    y_label : str, default ""
        Label of the y axis.
    size : tuple of float, default (360.0, 216.0)
        Width and height.
    left : float, default 52.0
        Width of the numbers on the left.
    """

    def __init__(
        self,
        title: str,
        description: str,
        x_label: str,
        y_label: str = "",
        *,
        size: tuple[float, float] = (WIDTH, HEIGHT),
        left: float = 52.0,
    ) -> None:
        self.title = title
        self.description = description
        self.x_label = x_label
        self.y_label = y_label
        self.width, self.height = size
        self.left, self.right = left, self.width - 10.0
        self.top, self.bottom = (22.0 if y_label else 10.0), self.height - 34.0
        self._back: list[Markup] = []
        self._front: list[Markup] = []

    def axes(self, x: Axis, y: Axis, *, x_ticks: Sequence[float] | None = None, count: int = 5) -> None:
        """Draw grid lines and about `count` (default 5) numbers on each axis, or `x_ticks` (optional)."""
        for value in y.ticks(count):
            at = y(value)
            self._back.append(element("line", class_="grid", x1=self.left, x2=self.right, y1=at, y2=at))
            self._back.append(
                element("text", tick_text(value), class_="tick", x=self.left - 6, y=at + 3.6, text_anchor="end")
            )
        self._back.append(element("line", class_="axis", x1=self.left, x2=self.right, y1=self.bottom, y2=self.bottom))
        for value in x.ticks(count) if x_ticks is None else x_ticks:
            at = x(value)
            self._back.append(element("line", class_="axis", x1=at, x2=at, y1=self.bottom, y2=self.bottom + 4))
            self._back.append(
                element("text", tick_text(value), class_="tick", x=at, y=self.bottom + 16, text_anchor="middle")
            )

    def add(self, *shapes: Markup) -> None:
        """Draw shapes in front of the earlier ones."""
        self._front.extend(shapes)

    def render(self, *, wide: bool = False) -> Markup:
        """Return the chart, over the full width of the page where `wide` is set (default False)."""
        middle = (self.left + self.right) / 2
        labels = [
            element("text", self.x_label, class_="label", x=middle, y=self.height - 3, text_anchor="middle"),
            element("text", self.y_label, class_="label", x=2.0, y=11.0),
        ]
        return element(
            "svg",
            element("title", self.title),
            element("desc", self.description),
            *self._back,
            *self._front,
            *labels,
            class_="chart wide" if wide else "chart",
            viewBox=f"0 0 {number(self.width)} {number(self.height)}",
            role="img",
            aria_label=f"{self.title}. {self.description}",
        )
