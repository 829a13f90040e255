"""Figures that are drawn into memory: no window, no global state. matplotlib is imported when one is drawn."""

from __future__ import annotations

import io
import warnings
from typing import Any


def new_figure(width: float, height: float) -> Any:
    """An empty figure of that many inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def as_png(figure: Any) -> bytes:
    """The content of a PNG file."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a box is shown; that is all we can do
        figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()
