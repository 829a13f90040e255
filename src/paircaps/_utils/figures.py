"""Figures of matplotlib, drawn in memory without a window or global state; it is imported when one is drawn."""

from __future__ import annotations

import io
import warnings
from typing import Any

from paircaps._utils.extras import require_extra


def new_figure(width: float, height: float) -> Any:
    """Empty figure of a width and height in inches."""
    require_extra("drawing figures", "matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def as_png(figure: Any) -> bytes:
    """A figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a box is drawn in place of the glyph
        figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()
