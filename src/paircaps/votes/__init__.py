"""Child capsules to votes: learned transforms, and lazy votes that are dense or reduced tile by tile.

FM agreement needs two sums over the children, Σû and Σû². A tile of children casts its votes into a buffer that stays
in the processor's cache, they are added to the sums, and the next tile overwrites them; the backward pass casts them
anew. Batch norm of the votes costs no pass over them: votes are linear in the children, so its statistics follow from
the children's second moments, and its scale and shift fold into the vote weights.

- ``transforms``: the learned transforms.
- ``lazy_votes``: the votes of a layer, and the one decision how much of them a routing gets.
- ``windows``: the windows of a convolutional capsule layer, and ``window_votes`` the votes in them.
- ``tiled_sums``: the sums over tiles and their gradients.
- ``grid_sums``: the same over a grid whose positions share weights.
- ``statistics``: mean and variance of the votes and their gradients.
- ``fold_norm``: batch norm folded into the weights.
- ``layout``: memory layout and size of a tile.
- ``operators``: sums and statistics as operators for autograd and ``torch.compile``.
"""

from __future__ import annotations

from paircaps.votes.layout import tile_children
from paircaps.votes.lazy_votes import LazyVotes
from paircaps.votes.transforms import LinearVotes, MatrixVotes, VectorVotes, create_transform
from paircaps.votes.window_votes import WindowVotes
from paircaps.votes.windows import Windows

__all__ = [
    "LazyVotes",
    "LinearVotes",
    "MatrixVotes",
    "VectorVotes",
    "WindowVotes",
    "Windows",
    "create_transform",
    "tile_children",
]
