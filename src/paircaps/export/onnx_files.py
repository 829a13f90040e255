"""Networks and decoders as ONNX graphs: the content of ``.onnx`` files, which ONNX Runtime and others run."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

import paircaps
from paircaps._utils.extras import require_extra
from paircaps.export.about import about
from paircaps.export.graphs import (
    BATCH,
    DECODER_OUTPUTS,
    decoder_program,
    network_program,
    output_names,
    quiet_exporter,
    refused,
)
from paircaps.network import Network

OPSET = 18
"""Version of ONNX's operators; ONNX Runtime has them since 1.14."""

PACKAGES = ("onnx", "onnxscript")
METADATA_KEY = "paircaps"
"""Property of an ONNX file whose value says, as JSON, what the network is."""


def onnx_graph(network: Network, source: Mapping[str, Any] | None = None) -> bytes:
    """The ONNX graph of a network: the content of an ``.onnx`` file.

    Its input ``images`` is float32 (batch, C, H, W) in 0..1, of the size that ``spec.preparation.size`` says; the graph
    crops and standardises by itself. Its outputs are ``activation`` and ``probability``, (batch, J), and ``pose``,
    (batch, J, K); of a segmentation network also ``mask``, (batch, J, h, w), logits. The batch is of any size.

    Args:
        network: the network, which is left as it was.
        source: content of the ``model.json`` that the network was loaded from, for the metadata; None if there is none.

    Raises:
        MissingExtraError: if onnx or onnxscript are not installed.
    """
    require_extra("export to ONNX", *PACKAGES, extra="export")
    return as_onnx(network_program(network), output_names(network), about(network, source))


def onnx_decoder(network: Network, source: Mapping[str, Any] | None = None) -> bytes:
    """The ONNX graph of a network's decoder: the content of an ``.onnx`` file.

    Its inputs are ``pose``, float32 (batch, J, K), and ``label``, int64 (batch,); its output is ``image``,
    (batch, C, h, w) in 0..1, drawn from the pose of the class ``label``.

    Args:
        network: a network with a decoder, which is left as it was.
        source: as for :func:`onnx_graph`.

    Raises:
        PaircapsError: if the network has no decoder.
        MissingExtraError: as for :func:`onnx_graph`.
    """
    require_extra("export to ONNX", *PACKAGES, extra="export")
    return as_onnx(decoder_program(network), DECODER_OUTPUTS, about(network, source))


def as_onnx(program: ExportedProgram, outputs: Sequence[str], facts: Mapping[str, Any]) -> bytes:
    """Translate a traced program to ONNX.

    Args:
        program: the program, whose inputs have names and the batch as their first axis.
        outputs: names of its outputs.
        facts: metadata, as JSON has them.
    """
    with quiet_exporter(), _quiet_log(), refused("torch.onnx cannot translate this network"):
        translated = torch.onnx.export(
            program.run_decompositions({torch.ops.aten.sigmoid.default: _exact_sigmoid}),
            dynamo=True,
            output_names=list(outputs),
            opset_version=OPSET,
            optimize=False,
            verbose=False,
        )
        assert translated is not None
        _simplify(translated.model)
    model = translated.model_proto
    _clean(model)
    model.producer_name, model.producer_version = "paircaps", paircaps.__version__
    model.metadata_props.add(key=METADATA_KEY, value=json.dumps(facts, ensure_ascii=False))
    return model.SerializeToString(deterministic=True)


def _exact_sigmoid(x: Tensor) -> Tensor:
    """The sigmoid, with as many digits of small values as of large ones.

    That of ONNX Runtime ends at 1.5e-8, and EM routing takes its logarithm.
    """
    return (1 + (-x).exp()).reciprocal()


def _simplify(model: Any) -> None:
    """Inline functions and compute what is constant, in place.

    Not by the exporter's own ``optimize``, which takes x + 1e-9 for x: EM routing would divide by zero.
    """
    from onnxscript import optimizer

    optimizer.inline(model)
    optimizer.fold_constants(model)
    optimizer.remove_unused_nodes(model)


def _clean(model: Any) -> None:
    """Remove what the exporter notes about the code it traced, with paths of this machine, and name the batch axis."""
    graph = model.graph
    symbols = {dim.dim_param for value in graph.input for dim in value.type.tensor_type.shape.dim if dim.dim_param}
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del part.metadata_props[:]
        part.ClearField("doc_string")
    del graph.value_info[:]  # shapes in between, which a runtime infers
    for value in (*graph.input, *graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in symbols:
                dim.dim_param = BATCH


@contextmanager
def _quiet_log() -> Iterator[None]:
    """Context without the exporter's notes on its progress, such as that torchvision is not installed."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
