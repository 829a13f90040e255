"""Trained networks as files that other programs run: ONNX, ``torch.export``, plain weights, a page in the browser."""

from paircaps.export.compare import Score, greatest_difference
from paircaps.export.onnx_files import onnx_decoder, onnx_graph
from paircaps.export.page import PageReport, export_page
from paircaps.export.write import ExportReport, export_network

__all__ = [
    "ExportReport",
    "PageReport",
    "Score",
    "export_network",
    "export_page",
    "greatest_difference",
    "onnx_decoder",
    "onnx_graph",
]
