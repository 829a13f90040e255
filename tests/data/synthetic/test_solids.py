"""Rays and solids against a search along each ray, and by hand."""

import math

import pytest
import torch
import torch.nn.functional as F

from paircaps.data.synthetic.solids import BALL, BOX, CYLINDER, NOWHERE, Solid, Solids, first_hits

ACROSS = torch.tensor([0.0, 0.0, -1.0])


def one_ray(solids: list[Solid], origin, direction):
    direction = F.normalize(torch.tensor(direction, dtype=torch.float32), dim=0)
    hits = first_hits(Solids.of([solids]), torch.tensor(origin).float().view(1, 1, 1, 3), direction.view(1, 1, 1, 3))
    return hits.distance.item(), hits.normal.view(3), hits.solid.item()


def turned(seed: int) -> torch.Tensor:
    basis, _ = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(seed)))
    return basis * torch.linalg.det(basis).sign()


def inside(solid: Solid, points: torch.Tensor) -> torch.Tensor:
    """Whether points (..., 3) lie in a solid, by its definition."""
    x, y, z = (((points - solid.centre) @ solid.turn) / solid.half).unbind(-1)
    width = 1 - solid.taper * (y + 1) / 2
    if solid.kind == BALL:
        return x**2 + y**2 + z**2 <= 1
    if solid.kind == BOX:
        return (y.abs() <= 1) & (x.abs() <= width) & (z.abs() <= width)
    return (y.abs() <= 1) & (x**2 + z**2 <= width**2)


def test_a_ball_straight_ahead():
    ball = Solid(BALL, torch.tensor([0.0, 0.0, -5.0]), torch.tensor([1.0, 1.0, 2.0]), torch.eye(3))
    distance, normal, solid = one_ray([ball], (0, 0, 0), (0, 0, -1))
    assert distance == pytest.approx(3)  # it reaches two towards us
    assert torch.allclose(normal, -ACROSS)
    assert solid == 0


def test_the_nearest_of_two_is_met_and_nothing_behind_the_ray():
    balls = [Solid(BALL, at * ACROSS, torch.ones(3), torch.eye(3)) for at in (9.0, 5.0, -5.0)]
    assert one_ray(balls, (0, 0, 0), (0, 0, -1))[::2] == (pytest.approx(4), 1)
    assert one_ray(balls[:1], (0, 0, 0), (0, 0, 1))[0] == NOWHERE


def test_a_ray_that_meets_nothing():
    distance, normal, solid = one_ray([Solid(BOX, torch.zeros(3), torch.ones(3), torch.eye(3))], (0, 5, 0), (1, 0, 0))
    assert distance == math.inf
    assert not normal.any()
    assert solid == -1


@pytest.mark.parametrize("taper", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("kind", [BALL, BOX, CYLINDER])
def test_entries_against_a_search_along_the_ray(kind, taper):
    generator = torch.Generator().manual_seed(kind)
    solid = Solid(kind, torch.tensor([0.2, -0.1, 0.3]), torch.tensor([0.8, 0.5, 0.6]), turned(kind), taper)
    origin = torch.tensor([0.0, 0.5, 5.0])
    aims = torch.rand(400, 3, generator=generator) * 2.4 - 1.2
    direction = F.normalize(aims - origin, dim=-1)
    hits = first_hits(Solids.of([[solid]]), origin.view(1, 1, 1, 3), direction.view(1, 20, 20, 3))
    steps = torch.linspace(2, 8, 6001)
    within = inside(solid, origin + steps[:, None, None] * direction)  # (steps, rays)
    met = within.any(0)
    first = steps[within.to(torch.uint8).argmax(0)]
    found = hits.distance.flatten()
    assert 40 < met.sum() < 400
    thin = (met != (found < NOWHERE)).sum()  # a ray may graze a solid between two steps
    assert thin <= 3
    both = met & (found < NOWHERE)
    assert (found - first)[both].abs().max() < 2e-3
    # normals point against the rays, and out of the solid
    normal, at = hits.normal.view(-1, 3)[both], (origin + found[:, None] * direction)[both]
    assert torch.allclose(normal.norm(dim=-1), torch.ones(len(normal)), atol=1e-5)
    assert ((normal * direction[both]).sum(-1) < 1e-4).all()
    assert (~inside(solid, at + 1e-3 * normal)).float().mean() > 0.99


@pytest.mark.parametrize("taper", [0.0, 0.6])
@pytest.mark.parametrize("kind", [BALL, BOX, CYLINDER])
def test_a_normal_is_that_of_the_surface(kind, taper):
    """From ray to ray, the point of entry moves at a right angle to the normal, wherever all meet one face."""
    solid = Solid(kind, torch.zeros(3), torch.tensor([0.9, 1.0, 0.7]), turned(1), taper)  # seen from aside
    origin = torch.tensor([0.0, 0.2, 4.0])
    across = torch.linspace(-1, 1, 64)
    up, right = torch.meshgrid(across, across, indexing="ij")
    direction = F.normalize(torch.stack([right, up, torch.zeros(64, 64)], -1) - origin, dim=-1)
    hits = first_hits(Solids.of([[solid]]), origin.view(1, 1, 1, 3), direction[None])
    at, normal = (origin + hits.distance[0, ..., None] * direction), hits.normal[0]
    for axis in (0, 1):
        before, middle, after = (normal.narrow(axis, start, 62) for start in (0, 1, 2))
        same_face = ((before * middle).sum(-1) > 0.99) & ((after * middle).sum(-1) > 0.99)
        moved = F.normalize(at.narrow(axis, 2, 62) - at.narrow(axis, 0, 62), dim=-1)
        aside = (moved * middle).sum(-1)[same_face]
        assert len(aside) > 300
        assert (aside.abs() < 0.03).float().mean() > 0.97


def test_bundles_change_nothing():
    """A bundle rules out solids that none of its rays can meet, and no others."""
    solids = Solids.of([[Solid(k % 3, torch.randn(3) * 0.7, torch.full((3,), 0.25), turned(k), 0.3) for k in range(9)]])
    direction = F.normalize(torch.randn(1, 64, 1, 3) * 0.25 + ACROSS, dim=-1)
    origin = torch.tensor([0.0, 0.0, 4.0]).view(1, 1, 1, 3)
    alone = first_hits(solids, origin, direction)
    together = first_hits(solids, origin, direction.view(1, 4, 16, 3))
    assert torch.equal(alone.solid.flatten(), together.solid.flatten())
    assert torch.equal(alone.distance.flatten(), together.distance.flatten())
