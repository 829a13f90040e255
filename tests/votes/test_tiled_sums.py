"""Nothing as large as the votes is there at any time."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from paircaps.votes import MatrixVotes, VectorVotes, tile_children
from paircaps.votes.layout import TILE_BYTES
from paircaps.votes.tiled_sums import SumArguments, tiled_gradients, tiled_sums


class Largest(TorchDispatchMode):
    """Elements of the largest tensor that an operation returned."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for part in result if isinstance(result, list | tuple) else [result]:
            if isinstance(part, torch.Tensor):
                self.elements = max(self.elements, part.untyped_storage().nbytes() // 4)
        return result


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("parents", [10, 300])
@pytest.mark.parametrize("transform", [MatrixVotes, VectorVotes])
def test_nothing_as_large_as_the_votes_is_ever_there(transform, parents, scaled):
    batch, children = 256, 5120 // parents
    weights = transform(children, parents, 16, 16)
    u, weight = torch.randn(batch, children, 16), weights.weight.detach()
    affine = (torch.ones(16), torch.zeros(16)) if scaled else (None, None)
    job = SumArguments(u, weight, *affine, weights.rows, True, tile_children(batch, parents, 16))
    slope = torch.randn(batch, parents, 16)
    with Largest() as largest:
        tiled_sums(job)
        tiled_gradients(job, slope, slope)
    assert largest.elements <= max(2 * TILE_BYTES // 4, u.numel(), weight.numel(), slope.numel())
    assert largest.elements < batch * children * parents * 16 / 8


@pytest.mark.parametrize(("batch", "parents", "pose_dim"), [(128, 10, 16), (1, 10, 16), (128, 1000, 16), (4096, 5, 64)])
def test_a_tile_fills_its_bytes(batch, parents, pose_dim):
    tile = tile_children(batch, parents, pose_dim)
    assert tile >= 1
    chunk = min(parents, max(1, TILE_BYTES // (4 * batch * pose_dim * 8)))
    assert tile == 1 or 4 * tile * batch * chunk * pose_dim <= TILE_BYTES
    assert 4 * (tile + 1) * batch * chunk * pose_dim > TILE_BYTES
