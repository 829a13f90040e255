"""Trained networks as files that other programs run: ONNX graphs, and programs of ``torch.export``."""

from paircaps.export.onnx_files import onnx_decoder, onnx_graph

__all__ = ["onnx_decoder", "onnx_graph"]
