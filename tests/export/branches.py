"""Every kind of capsule layer, side by side in one module, so that one export holds them all."""

import torch
from torch import nn

from paircaps.layers import CapsuleLayer, ConvCapsuleLayer, MapCapsuleLayer, PrimaryCapsules

GRID = (4, 4, 4)
POSE = 4


def layers(routing="fm", streaming="auto"):
    """Layers of every kind by name; all but the last take capsules on a grid."""
    options = {"pose_dim": POSE, "routing": routing, "streaming": streaming}
    return {
        "matrix": CapsuleLayer(GRID, 3, **options),
        "vector": CapsuleLayer(GRID, 3, transform="vector", vote_norm="vote", **options),
        "no norm": CapsuleLayer(GRID, 3, vote_norm=None, **options),
        "position": CapsuleLayer(GRID, 3, share="position", coordinates="add", **options),
        "position learned": CapsuleLayer(GRID, 3, share="position", coordinates="learned", vote_norm="vote", **options),
        "all": CapsuleLayer(GRID, 3, share="all", **options),
        "conv": ConvCapsuleLayer(GRID[2], 3, stride=2, padding=1, **options),
        "map": MapCapsuleLayer(GRID[2], GRID[:2], 3, pose_dim=POSE, routing=routing),
    }


class Branches(nn.Module):
    """Layers side by side: the same children to pose and activation of each."""

    def __init__(self, layers):
        super().__init__()
        self.primary = PrimaryCapsules(3, 7, groups=GRID[2], pose_dim=POSE)
        assert self.primary.out_grid == GRID
        self.names = list(layers)
        self.layers = nn.ModuleList(layers.values())

    def forward(self, maps):
        children = self.primary(maps)
        parents = [layer(children) for layer in self.layers]
        return tuple(part for each in parents for part in (each.pose, each.activation))

    @property
    def outputs(self):
        return [f"{name} {part}" for name in self.names for part in ("pose", "activation")]

    def settled(self):
        """Itself in eval mode, with statistics of batch norm that are not those of a fresh layer."""
        with torch.no_grad():
            for _ in range(3):
                self(torch.randn(32, 3, 7, 7))
        return self.eval()
