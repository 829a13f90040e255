"""Solids and rays: where straight rays first meet ellipsoids, tapered boxes and tapered cylinders.

A solid is a simple shape in coordinates of its own, moved, turned and stretched into place:

    p = centre + turn · (half ⊙ q),  q a point of the simple shape

The simple shapes lie within −1..1: the ball ‖q‖ ≤ 1; the box, whose sides at height y (the second coordinate) lie at
± (1 − taper (y + 1) / 2); and the cylinder around the second axis, whose radius at height y is the same. A taper of 1
makes them a pyramid and a cone. All are convex, so a ray enters a solid once.

Neighbouring rays come in bundles. A bundle is tested against a ball around each solid first, and the few pairs of
bundle and solid that are left are computed exactly, in one long row whatever picture they belong to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

BALL, BOX, CYLINDER = range(3)
"""Kinds of solids."""

NOWHERE = float("inf")
"""Distance at which a ray meets nothing."""

_TINY = 1e-9


@dataclass(frozen=True)
class Solid:
    """One solid.

    Args:
        kind: ``BALL``, ``BOX`` or ``CYLINDER``.
        centre: its middle, (3,).
        half: half its length along its own three axes, (3,).
        turn: matrix whose columns are these axes, (3, 3).
        taper: share by which a box or a cylinder is narrower at the end of its second axis than at the beginning.
    """

    kind: int
    centre: Tensor
    half: Tensor
    turn: Tensor
    taper: float = 0.0

    @property
    def radius(self) -> float:
        """Radius of a ball around the centre that holds the solid."""
        half = self.half.tolist()
        if self.kind == BALL:
            return max(half)
        if self.kind == CYLINDER:
            return (max(half[0], half[2]) ** 2 + half[1] ** 2) ** 0.5
        return sum(side**2 for side in half) ** 0.5

    def moved(self, shift: Tensor, scale: float) -> Solid:
        """The solid after p → scale · (p + shift)."""
        return Solid(self.kind, (self.centre + shift) * scale, self.half * scale, self.turn, self.taper)


class Solids(NamedTuple):
    """Solids of N things, padded with solids that no ray meets to P of each.

    Attributes:
        kind: (N, P).
        centre: (N, P, 3).
        to_own: matrix from directions to those of the solid's own coordinates, turnᵀ divided by half, (N, P, 3, 3).
        taper: (N, P).
        radius: radius of a ball around each, negative for padding, (N, P).
    """

    kind: Tensor
    centre: Tensor
    to_own: Tensor
    taper: Tensor
    radius: Tensor

    @classmethod
    def of(cls, things: Sequence[Sequence[Solid]]) -> Solids:
        """Solids of some things in one set of tensors.

        Args:
            things: the solids of each thing.
        """
        most = max(len(thing) for thing in things)
        kind, taper = torch.zeros(len(things), most, dtype=torch.long), torch.zeros(len(things), most)
        centre, to_own = torch.zeros(len(things), most, 3), torch.eye(3).repeat(len(things), most, 1, 1)
        radius = torch.full((len(things), most), -1.0)
        for n, thing in enumerate(things):
            for p, solid in enumerate(thing):
                kind[n, p], taper[n, p], radius[n, p] = solid.kind, solid.taper, solid.radius
                centre[n, p], to_own[n, p] = solid.centre, solid.turn.T / solid.half[:, None]
        return cls(kind, centre, to_own, taper, radius)

    def select(self, index: Tensor) -> Solids:
        """Solids of some of the things, in the order of an index (M,)."""
        return Solids(*(values[index] for values in self))


class Hits(NamedTuple):
    """Where rays first meet a solid.

    Attributes:
        distance: along the ray, in lengths of its direction; infinite where it meets nothing, (..., R).
        normal: unit vector that points out of the solid, zero where nothing is met, (..., R, 3).
        solid: number of the solid among those of its thing, −1 where nothing is met, (..., R).
    """

    distance: Tensor
    normal: Tensor
    solid: Tensor


def first_hits(solids: Solids, origin: Tensor, direction: Tensor) -> Hits:
    """Where rays first meet the solids of their thing.

    Neighbouring rays come in bundles, so that most solids are ruled out for a whole bundle at once.

    Args:
        solids: solids of V things.
        origin: where the rays begin, (V, T, S, 3); sizes of one stand for all things, bundles or rays.
        direction: direction of each ray, of length one: (V, T, S, 3) for T bundles of S rays.

    Returns:
        Hits of (V, T, S), (V, T, S, 3) and (V, T, S).
    """
    things, bundles, rays = direction.shape[:3]
    origin = origin.expand(things, bundles, -1, 3)  # one for a bundle, or one for a ray
    thing, bundle, which = _near_pairs(solids, origin, direction).unbind(-1)
    # rays of each pair of bundle and solid, in the solid's own coordinates
    to_own = solids.to_own[thing, which].transpose(1, 2)  # (M, 3, 3)
    begin = torch.bmm(origin[thing, bundle] - solids.centre[thing, which][:, None], to_own)
    along = torch.bmm(direction[thing, bundle], to_own)
    kind, taper = solids.kind[thing, which], solids.taper[thing, which]
    distance, own_normal = _entries(kind, taper, begin.expand_as(along), along)  # (M, S), (M, S, 3)
    # the nearest solid of each ray; of two at the same distance, the pair that comes first
    flat = ((thing * bundles + bundle)[:, None] * rays + torch.arange(rays)).flatten()  # number of the ray
    distance, count = distance.flatten(), len(flat)
    nearest = torch.full((things * bundles * rays,), NOWHERE).scatter_reduce_(0, flat, distance, "amin")
    order = torch.where((distance == nearest[flat]) & (distance < NOWHERE), torch.arange(count), count)
    chosen = torch.full((things * bundles * rays,), count).scatter_reduce_(0, flat, order, "amin")
    met = (chosen < count).nonzero()[:, 0]
    place = chosen[met]
    pair = place // rays
    # a normal turns by the transpose of the map into own coordinates
    outward = torch.bmm(to_own[pair], own_normal.flatten(0, 1)[place][..., None])[..., 0]
    normal = torch.zeros(things * bundles * rays, 3)
    normal[met] = F.normalize(outward, dim=-1)
    solid = torch.full((things * bundles * rays,), -1)
    solid[met] = which[pair]
    shape = (things, bundles, rays)
    return Hits(nearest.view(shape), normal.view(*shape, 3), solid.view(shape))


def _near_pairs(solids: Solids, origin: Tensor, direction: Tensor) -> Tensor:
    """Triples (thing, bundle, solid) in which a ray of the bundle may meet the ball around the solid, (M, 3).

    A ray passes a point no nearer than the middle ray of its bundle does, less the distance of their beginnings and the
    distance by which they part on the way to the point.
    """
    begin, along = origin.mean(2), F.normalize(direction.mean(2), dim=-1)  # middle ray, (V, T, 3)
    beside = (origin - begin[:, :, None]).norm(dim=-1).amax(-1)  # (V, T)
    parting = (direction - along[:, :, None]).norm(dim=-1).amax(-1)
    between = solids.centre[:, None] - begin[:, :, None]  # (V, T, P, 3)
    far = between.square().sum(-1)
    passed = far - (between * along[:, :, None]).sum(-1).square()  # squared distance of the middle ray
    reach = solids.radius[:, None] + beside[..., None] + parting[..., None] * far.sqrt()
    return ((passed < reach.square()) & (solids.radius > 0)[:, None]).nonzero()


def _entries(kind: Tensor, taper: Tensor, begin: Tensor, along: Tensor) -> tuple[Tensor, Tensor]:
    """Where rays enter simple shapes.

    Args:
        kind: (M,).
        taper: (M,).
        begin: where rays begin in own coordinates, (M, S, 3).
        along: their directions, (M, S, 3).

    Returns:
        distance (M, S), infinite if a ray does not enter, and normal in own coordinates (M, S, 3).
    """
    distance = along.new_empty(along.shape[:-1])
    normal = torch.empty_like(along)
    for of_kind, enter in ((BALL, _enter_ball), (BOX, _enter_box), (CYLINDER, _enter_cylinder)):
        rows = (kind == of_kind).nonzero()[:, 0]
        if len(rows):
            distance[rows], normal[rows] = enter(taper[rows][:, None], begin[rows], along[rows])
    return distance, normal


def _enter_ball(taper: Tensor, begin: Tensor, along: Tensor) -> tuple[Tensor, Tensor]:
    """Entry into the ball ‖q‖ ≤ 1."""
    a, b, c = along.square().sum(-1), (begin * along).sum(-1), begin.square().sum(-1) - 1
    root = b.square() - a * c
    distance = (-b - root.clamp_min(0).sqrt()) / a
    distance = torch.where((root > 0) & (distance > 0), distance, NOWHERE)
    return distance, _points(begin, along, distance)


def _enter_box(taper: Tensor, begin: Tensor, along: Tensor) -> tuple[Tensor, Tensor]:
    """Entry into the tapered box: six half spaces, of which the last one entered is where the ray enters."""
    slope = taper / 2
    (x, y, z), (dx, dy, dz) = begin.unbind(-1), along.unbind(-1)
    wall, slant = 1 - slope - slope * y, slope * dy  # |x| ≤ 1 − slope − slope · y
    gaps = torch.stack([wall - x, wall + x, 1 - y, 1 + y, wall - z, wall + z])  # (6, M, S)
    speeds = torch.stack([slant + dx, slant - dx, dy, -dy, slant + dz, slant - dz])
    reached = gaps / torch.where(speeds.abs() < _TINY, _TINY, speeds)
    distance, side = torch.where(speeds < 0, reached, -NOWHERE).max(0)
    leaving = torch.where(speeds >= 0, reached, NOWHERE).amin(0)
    inside = (distance < leaving) & (distance > 0)
    faces = torch.tensor([[1.0, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]])
    normal = faces[side]
    normal[..., 1] += slope * ((side < 2) | (side > 3))
    return torch.where(inside, distance, NOWHERE), normal


def _enter_cylinder(taper: Tensor, begin: Tensor, along: Tensor) -> tuple[Tensor, Tensor]:
    """Entry into the tapered cylinder: the first of the points where a ray crosses its mantle or one of its ends."""
    middle, slope = 1 - taper / 2, taper / 2  # radius at height y: middle − slope · y
    (x, y, z), (dx, dy, dz) = begin.unbind(-1), along.unbind(-1)
    radius, narrowing = middle - slope * y, -slope * dy
    a = dx.square() + dz.square() - narrowing.square()
    b = x * dx + z * dz - radius * narrowing
    c = x.square() + z.square() - radius.square()
    root = b.square() - a * c
    spread, a = root.clamp_min(0).sqrt(), torch.where(a.abs() < _TINY, _TINY, a)
    level = torch.where(dy.abs() < _TINY, _TINY, dy)
    times = torch.stack([(-b - spread) / a, (-b + spread) / a, (1 - y) / level, (-1 - y) / level])  # (4, M, S)
    height = y + dy * times
    width = middle - slope * height
    on_mantle = (root > 0) & (height[:2].abs() <= 1) & (width[:2] >= 0)
    on_end = (x + dx * times[2:]).square() + (z + dz * times[2:]).square() <= width[2:].square()
    valid = torch.cat([on_mantle, on_end]) & (times > 0)
    distance, which = torch.where(valid, times, NOWHERE).min(0)
    normal = _points(begin, along, distance)
    normal[..., 1] = slope * (middle - slope * normal[..., 1])
    at_end = which >= 2
    normal[at_end] = torch.tensor([0.0, 1.0, 0.0])
    normal[which == 3] *= -1
    return distance, normal


def _points(begin: Tensor, along: Tensor, distance: Tensor) -> Tensor:
    """Points at a distance along rays; where they begin if it is infinite."""
    return begin + along * torch.where(distance < NOWHERE, distance, 0.0)[..., None]
