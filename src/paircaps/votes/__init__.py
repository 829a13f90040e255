"""Child capsules to votes: dense, or walked tile by tile.

FM agreement needs two sums over the children, Σû and Σû². A tile of children casts its votes into a buffer that stays
in the processor's cache, they are added to the sums, and the next tile overwrites them; the backward pass casts them
anew. Batch norm of the votes costs no pass over them: votes are linear in the children, so its statistics follow from
the children's second moments, and its scale and shift fold into the vote weights.

``transforms`` has the learned transforms, ``ballot`` the votes as a routing sees them. Below that, ``layout`` says how
a tile lies in memory and how large it is, ``fold`` puts batch norm into the weights, ``walk`` sums and differentiates,
``statistics`` has the moments, and ``operators`` makes all that known to autograd and to ``torch.compile``.
"""

from __future__ import annotations

from paircaps.votes.layout import tile_children
from paircaps.votes.lazy_votes import LazyVotes
from paircaps.votes.transforms import LinearVotes, MatrixVotes, VectorVotes, create_transform

__all__ = [
    "LazyVotes",
    "LinearVotes",
    "MatrixVotes",
    "VectorVotes",
    "create_transform",
    "tile_children",
]
