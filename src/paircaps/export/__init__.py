"""Trained networks as files that other programs run: ONNX graphs, programs of ``torch.export``, plain weights."""

from paircaps.export.compare import LIMIT, Score, greatest_difference
from paircaps.export.onnx_files import onnx_decoder, onnx_graph
from paircaps.export.write import ExportReport, export_network

__all__ = ["LIMIT", "ExportReport", "Score", "export_network", "greatest_difference", "onnx_decoder", "onnx_graph"]
