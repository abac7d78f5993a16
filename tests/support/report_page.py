"""How readable a report's page is: contrast of colors, and where the texts of a picture are."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Color = NDArray[np.float64]

_LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
# hue-rotate(180deg) of the CSS filters.
_ROTATED = np.array(
    [[-0.574, 1.43, 0.144], [0.426, 0.43, 0.144], [0.426, 1.43, -0.856]], np.float64
)


def hexadecimal(color: str) -> Color:
    """The shares of red, green and blue."""
    return np.array([int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)])


def inverted(color: Color) -> Color:
    """What the filter of the dark page makes of a color in a picture."""
    return np.asarray(np.clip(_ROTATED @ (1 - color), 0, 1))


def contrast(one: Color, other: Color) -> float:
    """By WCAG 2.2, from 1 to 21."""
    linear = [
        np.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)
        for color in (one, other)
    ]
    low, high = sorted(float(values @ _LUMINANCE) for values in linear)
    return (high + 0.05) / (low + 0.05)


def text_colors(svg: bytes) -> set[str]:
    """The colors of the texts of a picture."""
    texts = re.findall(r'<g id="text_.*?</g>', svg.decode(), re.DOTALL)
    return {(re.findall(r'style="fill: (#\w{6})', text) or ["#000000"])[0] for text in texts}


def least_contrast(svg: bytes) -> float:
    """Of the texts of a picture with the page, light and, inverted, dark."""
    light, dark = hexadecimal("#ffffff"), hexadecimal("#14171a")
    colors = [hexadecimal(color) for color in text_colors(svg)]
    return min(min(contrast(color, light), contrast(inverted(color), dark)) for color in colors)


def texts_of(axes: Any) -> list[tuple[str, Any]]:
    """Each text that is drawn of a picture's panels, with its box, without the line to it."""
    from matplotlib.text import Text

    panels = np.atleast_1d(axes)
    figure = panels[0].figure
    figure.draw_without_rendering()
    texts = [*filter(None, (figure._supylabel, figure._supxlabel))]
    for panel in panels:
        texts += [*panel.texts, panel.title, panel._left_title, panel._right_title]
        for axis in (panel.xaxis, panel.yaxis):
            texts += [axis.label, *_ticks(axis)]
    return [
        (text.get_text(), Text.get_window_extent(text))
        for text in texts
        if text.get_text() and text.get_visible()
    ]


def _ticks(axis: Any) -> Iterator[Any]:
    """The labels of ticks inside the limits; the others are not drawn."""
    low, high = sorted(axis.get_view_interval())
    for tick in axis.get_major_ticks():
        if low <= tick.get_loc() <= high and tick.label1.get_visible():
            yield tick.label1
