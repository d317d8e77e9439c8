"""Colours of figures: by position for classes and by name for models, the same on every page.

All have enough contrast on white and on dark pages.
"""

from __future__ import annotations

import colorsys
import zlib

BLUE, ORANGE, GREEN, PURPLE, GREY = "#2f6fb0", "#e07b39", "#3c9d6b", "#8b6bb1", "#8a94a0"
_PALETTE = (
    *(BLUE, ORANGE, GREEN, PURPLE, "#c44e6b", "#b08c14", "#2f9e96", "#9c6b4a", "#5f8fd0", "#7d8c2b", "#c06bb0"),
    "#4d7f5b",
)
_GOLDEN_ANGLE = 0.381966
_MODELS = {
    "gpatcher": ORANGE,
    "gpatcher (auto)": ORANGE,
    "fast-gpatcher": BLUE,
    "deep-gpatcher": GREEN,
    "gcn": PURPLE,
    "mlp": GREY,
    # side by side on the page of a run
    "logistic regression": "#b08c14",
    "logistic regression with adjacency rows": "#9c6b4a",
    "graphsage": "#2f9e96",
    "linkx": "#c44e6b",
}


def class_colour(position: int) -> str:
    """Return the colour of the class at this position among the classes of a graph."""
    if position < len(_PALETTE):
        return _PALETTE[position]
    red, green, blue = colorsys.hls_to_rgb(position * _GOLDEN_ANGLE % 1, 0.5, 0.45)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def model_colour(title: str) -> str:
    """Return the colour of a model by its title, as in ``Fast-GPatcher``."""
    others = _PALETTE[4:]
    return _MODELS.get(title.lower()) or others[zlib.crc32(title.lower().encode()) % len(others)]
