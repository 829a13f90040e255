"""Every routing and every kind of layer gives an ONNX graph that does what it does."""

from contextlib import suppress

import pytest
import torch
from export.branches import Branches, layers
from torch import nn

from paircaps import CapsuleLayer, list_routings
from paircaps.export.compare import LIMIT, differences, outputs
from paircaps.export.formats import FORMATS
from paircaps.export.graphs import traced
from paircaps.export.onnx_files import as_onnx

pytest.importorskip("onnxscript")


def every_routing():
    """A layer with each routing, which streams where it can, and iterates twice where it does."""
    return {name: layer(name) for name in list_routings()}


def layer(routing):
    for options in ({"iterations": 2}, {}):
        for streaming in (True, "auto"):  # some need all votes
            with suppress(TypeError, ValueError):
                return CapsuleLayer(
                    (4, 4, 4), 3, pose_dim=4, routing=routing, streaming=streaming, routing_options=options
                )
    raise AssertionError(routing)


@pytest.mark.parametrize("build", [every_routing, layers])
def test_a_graph_of_many_layers_does_what_they_do(build):
    branches = Branches(build()).settled()
    graph = as_onnx(traced(branches, {"maps": torch.randn(2, 3, 7, 7)}), branches.outputs, {})
    run = FORMATS[".onnx"].run(graph, {})
    maps = [torch.randn(20, 3, 7, 7)]
    found = differences(outputs(run, maps), outputs(branches, maps), branches.outputs)
    assert len(found) == 2 * len(branches.names)
    assert {name: value for name, value in found.items() if not value <= LIMIT} == {}
    assert b"CustomOp" not in graph
    assert b"paircaps::" not in graph, "no operator of this library"


class SmallNumbers(nn.Module):
    """What EM routing does with parents that no child is assigned to."""

    def forward(self, x):
        return x / (x.abs().sum(-1, keepdim=True) + 1e-9), (x.sigmoid() + 1e-12).log()


def test_small_numbers_are_kept():
    x = torch.tensor([[0.0, 0.0], [-25.0, 3.0], [-200.0, 90.0]])
    graph = as_onnx(traced(SmallNumbers().eval(), {"x": x}), ["share", "logarithm"], {})
    share, logarithm = FORMATS[".onnx"].run(graph, {})(x)
    torch.testing.assert_close(share, SmallNumbers()(x)[0])
    torch.testing.assert_close(logarithm, SmallNumbers()(x)[1])
