"""Figures of matplotlib, drawn in memory without a window or global state; it is imported when one is drawn."""

from __future__ import annotations

import io
import re
import warnings
from typing import Any

from paircaps._utils.checks import require_choice
from paircaps._utils.extras import require_extra

FORMATS = ("png", "svg", "pdf")
"""Formats that a figure can be written in."""

SLIDE = (40 / 3, 7.5)
"""Width and height in inches of a slide of 16:9, as presentation programs have it."""

SLIDE_WIDTH = 1920
"""Width of a slide in pixels, unless another one is given."""

_PIXELS_PER_INCH = SLIDE_WIDTH / SLIDE[0]
_VECTOR_DPI = 300  # resolution of images within svg and pdf
_MISSING_GLYPH = "Glyph .* missing from font"  # a box is drawn in place of the glyph


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
        warnings.filterwarnings("ignore", message=_MISSING_GLYPH)
        figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def new_slide(layout: str = "constrained") -> Any:
    """Empty figure of the shape of a slide, with room between its parts and its edges.

    Args:
        layout: matplotlib's layout: ``"constrained"``, or ``"compressed"`` for a grid of images close to each other.
    """
    figure = new_figure(*SLIDE)
    figure.set_layout_engine(layout, w_pad=0.1, h_pad=0.1)
    return figure


def as_slide(figure: Any, format: str = "png", width: int = SLIDE_WIDTH) -> bytes:
    """A figure as the content of a file of any format; everything in it grows with the width.

    Args:
        figure: the figure.
        format: png, svg or pdf.
        width: width in pixels, of which 144 are an inch: 1920 are the 13⅓ inches of a slide.
    """
    require_choice("format", format, FORMATS)
    scale = width / _PIXELS_PER_INCH / figure.get_figwidth()
    convert = {"png": _as_scaled_png, "svg": _as_svg, "pdf": _as_pdf}[format]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_MISSING_GLYPH)
        return convert(figure, scale)


def _as_scaled_png(figure: Any, scale: float) -> bytes:
    """A figure as PNG, with its width and height multiplied by a factor."""
    buffer = io.BytesIO()
    inch = (_PIXELS_PER_INCH, _PIXELS_PER_INCH)
    figure.savefig(buffer, format="png", dpi=scale * _PIXELS_PER_INCH, pil_kwargs={"dpi": inch})
    return buffer.getvalue()


def _as_svg(figure: Any, scale: float) -> bytes:
    """A figure as SVG, the same each time, with its width and height multiplied by a factor."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "paircaps"}):  # names of parts are random without it
        figure.savefig(buffer, format="svg", dpi=_VECTOR_DPI, metadata={"Date": None})
    text = buffer.getvalue().decode()
    width, height = (72 * scale * side for side in figure.get_size_inches())
    size = f'width="{width:.6g}pt" height="{height:.6g}pt" viewBox='
    return re.sub(r'width="[^"]*" height="[^"]*" viewBox=', size, text, count=1).encode()


def _as_pdf(figure: Any, scale: float) -> bytes:
    """A figure as PDF of one page, with everything on it multiplied by a factor, which savefig cannot do."""
    from matplotlib.backends.backend_pdf import Op, PdfFile, RendererPdf

    buffer = io.BytesIO()
    width, height = figure.get_size_inches()
    figure.dpi = 72  # points of an inch, the unit of PDF
    file = PdfFile(buffer, metadata={"CreationDate": None})
    try:
        file.newPage(scale * width, scale * height)
        file.output(scale, 0, 0, scale, 0, 0, Op.concat_matrix)
        renderer = RendererPdf(file, _VECTOR_DPI, height, width)
        figure.draw(renderer)
        renderer.finalize()
        file.finalize()
    finally:
        file.close()
    return buffer.getvalue()
