"""Capsule layer over whole maps: every kind of child votes with its map for the capsules of all positions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paircaps._utils.checks import height_and_width, require_positive, require_shape, require_tensor, shape_of
from paircaps.functional import Capsules
from paircaps.layers.capsule_layer import build_routing
from paircaps.routing import Routing, RoutingFactory


class MapCapsuleLayer(nn.Module):
    """Capsules on a grid to capsules on the same grid, routed over kinds and positions jointly.

    This is the 3-D convolutional capsule layer of Rajasegaran et al. (2019). A child is a kind with its whole map. One
    convolution, which all kinds share, turns the map into votes for every kind of parent at every position. The
    positions are folded into the parents, so a routing that divides a child among its parents, as dynamic routing does
    by a softmax, divides it among all kinds and positions together.

    >>> layer = MapCapsuleLayer(in_kinds=4, in_size=(5, 6), out_kinds=3, pose_dim=8)
    >>> layer(torch.randn(2, 5, 6, 4, 8)).pose.shape
    torch.Size([2, 5, 6, 3, 8])

    Args:
        in_kinds: kinds of children: so many lie at each position.
        in_size: side of the grid, or (height, width); the routing has a parent at each position, so it is fixed.
        out_kinds: kinds of parents.
        kernel_size: side of the convolution's kernel, an odd number.
        pose_dim: K, the dimensions of a parent.
        in_dim: K_in, the dimensions of a child; None means ``pose_dim``.
        routing: a registered name, a factory called with the number of parents at all positions and the sizes that it
            asks for (:attr:`paircaps.Routing.layer_sizes`), or a routing that is built already. A child's activation
            is the mean over its map, and a routing that reads the children gets the whole map of each.
        routing_options: options of the routing, if it is built here.
    """

    def __init__(
        self,
        in_kinds: int,
        in_size: int | tuple[int, int],
        out_kinds: int,
        kernel_size: int = 3,
        pose_dim: int = 8,
        in_dim: int | None = None,
        routing: str | RoutingFactory | nn.Module = "dynamic",
        *,
        routing_options: dict[str, object] | None = None,
    ) -> None:
        super().__init__()
        require_positive(in_kinds=in_kinds, out_kinds=out_kinds, kernel_size=kernel_size, pose_dim=pose_dim)
        if kernel_size % 2 == 0:
            raise ValueError(
                f"kernel_size must be odd, so that votes lie on the grid of the children, got {kernel_size}"
            )
        self.in_kinds, self.out_kinds = in_kinds, out_kinds
        self.grid = height_and_width("in_size", in_size)
        self.pose_dim = pose_dim
        self.in_dim = pose_dim if in_dim is None else in_dim
        require_positive(in_dim=self.in_dim)
        self.votes = nn.Conv2d(self.in_dim, out_kinds * pose_dim, kernel_size, padding=kernel_size // 2, bias=False)
        nn.init.kaiming_normal_(self.votes.weight, nonlinearity="relu")
        positions = self.grid[0] * self.grid[1]
        of_layer = {"in_capsules": in_kinds, "in_dim": positions * self.in_dim, "pose_dim": pose_dim}
        self.routing = build_routing(routing, positions * out_kinds, routing_options, False, of_layer)

    def forward(self, u: Tensor | Capsules, activation: Tensor | None = None) -> Capsules:
        """Parent capsules of child capsules.

        Args:
            u: child capsules, (..., H, W, in_kinds, K_in), or the output of the layer below.
            activation: activations of the children, (..., H, W, in_kinds), where ``u`` is a tensor; None stands for all
                ones.

        Returns:
            Capsules of (..., H, W, out_kinds, K), the same, and (..., H, W, out_kinds).
        """
        u, activation = self._checked(u, activation)
        maps = u.movedim(-2, -4).movedim(-1, -3)  # (..., in_kinds, K_in, H, W)
        arguments = [self._cast(maps), None if activation is None else activation.mean(dim=(-3, -2))]
        if isinstance(self.routing, Routing) and self.routing.reads_children:
            arguments.append(maps.flatten(-3))
        s, pose, active = self.routing(*arguments)
        grid = (*self.grid, self.out_kinds)
        return Capsules(s.unflatten(-2, grid), pose.unflatten(-2, grid), active.unflatten(-1, grid))

    def votes_shape(self, u: Tensor | Capsules, activation: Tensor | None = None) -> torch.Size:
        """Shape of the votes of child capsules: (..., in_kinds, H · W · out_kinds, K).

        Args:
            u: child capsules, as for a call.
            activation: activations of the children, as for a call.
        """
        u, _ = self._checked(u, activation)
        parents = self.grid[0] * self.grid[1] * self.out_kinds
        return torch.Size((*u.shape[:-4], self.in_kinds, parents, self.pose_dim))

    def _cast(self, maps: Tensor) -> Tensor:
        """Votes of maps: (..., in_kinds, K_in, H, W) to (..., in_kinds, H · W · out_kinds, K)."""
        votes = self.votes(maps.reshape(-1, *maps.shape[-3:])).unflatten(1, (self.out_kinds, self.pose_dim))
        votes = votes.permute(0, 3, 4, 1, 2).flatten(1, 3)  # parents position by position, kinds varying fastest
        return votes.reshape(*maps.shape[:-3], *votes.shape[1:])

    def _checked(self, u: Tensor | Capsules, activation: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Children of the right shape, and their activations."""
        if isinstance(u, Capsules):
            if activation is not None:
                raise ValueError("activation was given twice: Capsules carry their own")
            u, activation = u.s, u.activation
        require_tensor("u", u, "(..., height, width, kinds, in_dim)", 4)
        expected = (*self.grid, self.in_kinds, self.in_dim)
        if tuple(u.shape[-4:]) != expected:
            raise ValueError(f"expected a grid of child capsules, shape (..., {str(expected)[1:]}, got {shape_of(u)}")
        if activation is not None:
            require_shape("activation", activation, u.shape[:-1], f"one value per child for a grid of {shape_of(u)}")
        return u, activation

    def extra_repr(self) -> str:
        """Sizes, for print(model)."""
        height, width = self.grid
        return f"{self.in_kinds}×{self.in_dim} -> {self.out_kinds}×{self.pose_dim}, maps of {height}×{width}"
