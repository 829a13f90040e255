"""Pictures of toys: a camera, six lightings with shadows, and soft edges.

Everything is computed in coordinates of the toy: where the toy is turned by an azimuth, camera and light go round it
the other way. What several pictures share is computed once: what a camera sees does not depend on the lighting, and
where a light casts shadows does not depend on the camera. A picture is a pure function of its view.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from paircaps.data.synthetic.solids import NOWHERE, Solids, first_hits
from paircaps.data.synthetic.toy_shapes import CLASSES, INSTANCES, toy_solids

SIZE = 96
"""Side of a picture."""

ELEVATIONS = tuple(30 + 5 * step for step in range(9))
"""Elevations of the camera in degrees, those of smallNORB."""

AZIMUTHS = tuple(20 * step for step in range(18))
"""Degrees by which a toy is turned, those of smallNORB."""

LIGHTINGS = (
    (-40, 50, 0.62, 0.30),
    (40, 50, 0.62, 0.30),
    (-100, 35, 0.70, 0.26),
    (100, 35, 0.70, 0.26),
    (180, 50, 0.66, 0.34),
    (0, 35, 0.42, 0.46),
)
"""Six lightings: degrees to the right of the camera, elevation in degrees, strength of the lamp, strength of the sky.

Azimuths are multiples of 20 degrees, as those of the toys are, so that lamps cast the same shadows of a turned toy.
"""

TOY_BRIGHTNESS, GROUND_BRIGHTNESS = 0.72, 0.86
"""Shares of the light that toys and the ground reflect."""

_DISTANCE, _ASIDE = 5.2, 0.14  # of the camera from the toy, and of each camera of a pair from their middle
_TARGET = 0.42  # height that the camera looks at
_FIELD = 1.24  # half the width that a picture shows at the toy's distance
_MAP, _MAP_REACH = 128, 1.75  # texels along a side of a shadow map, and half its width
_OFFSET = 0.02  # by which a point is lifted off its surface before its shadow is looked up
_AT_ONCE = 8  # views that are computed together: their rays fit a processor's cache
_TILE = 8  # side of a bundle of neighbouring pixels or texels
_SAME_FACE = 0.8  # least cosine between the normals of neighbouring pixels without an edge between them
_SUBSAMPLES = ((-0.25, -0.25), (0.25, -0.25), (-0.25, 0.25), (0.25, 0.25))  # of a pixel at an edge


class Views(NamedTuple):
    """Views of toys, (B,) each.

    Attributes:
        kind: number of the class.
        instance: number of the toy in its class.
        elevation: number of the elevation, 0 to 8.
        azimuth: number of the azimuth, 0 to 17.
        lighting: number of the lighting, 0 to 5.
        camera: 0 for the left camera, 1 for the right one.
    """

    kind: Tensor
    instance: Tensor
    elevation: Tensor
    azimuth: Tensor
    lighting: Tensor
    camera: Tensor


class _Surface(NamedTuple):
    """Points at which the rays of V views end, on a toy or on the ground, (V, R, ...).

    Attributes:
        at: coordinates, (V, R, 3).
        normal: unit vectors, (V, R, 3).
        solid: number of the solid, −1 on the ground, (V, R).
    """

    at: Tensor
    normal: Tensor
    solid: Tensor


class _Lamps(NamedTuple):
    """Lamps of N pictures.

    Attributes:
        view: number of the view that each picture shows, (N,).
        axes: directions across to the right, across upwards and towards the lamp as columns, (N, 3, 3).
        strength: strength of the lamp, (N,).
        sky: strength of the sky, (N,).
        shadow: number of the shadow map of each picture, (N,).
        depth: shadow maps, how far towards the lamp the toy reaches, (M, texels, texels).
        covered: share of each texel and its neighbours that the toy hides from the lamp, (M, 1, texels, texels).
    """

    view: Tensor
    axes: Tensor
    strength: Tensor
    sky: Tensor
    shadow: Tensor
    depth: Tensor
    covered: Tensor


def draw_toys(views: Views) -> Tensor:
    """Draw pictures of toys.

    Args:
        views: what to draw.

    Returns:
        (B, 1, 96, 96) in uint8.
    """
    pictures = torch.empty(len(views.kind), 1, SIZE, SIZE, dtype=torch.uint8)
    if not len(pictures):
        return pictures
    toy = views.kind * INSTANCES + views.instance
    # shadow maps: one for each toy, lamp elevation and azimuth of the lamp as the toy sees it
    lamp = torch.tensor([[side // 20, height] for side, height, *_ in LIGHTINGS])[views.lighting]
    lamp_keys = torch.stack([toy, (lamp[:, 0] - views.azimuth) % len(AZIMUTHS), lamp[:, 1]], -1)
    maps, map_of = lamp_keys.unique(dim=0, return_inverse=True)
    depth = torch.cat([_shadow_maps(some) for some in maps.split(_AT_ONCE)])
    covered = F.avg_pool2d((depth > -NOWHERE).float()[:, None], 3, 1, 1)  # lamps are not points: soft shadows
    # what the cameras see: one for each toy, elevation, azimuth and camera
    camera_keys = torch.stack([toy, views.elevation, views.azimuth, views.camera], -1)
    seen, seen_of = camera_keys.unique(dim=0, return_inverse=True)
    strengths = torch.tensor([strengths for _, _, *strengths in LIGHTINGS])[views.lighting]
    for start in range(0, len(seen), _AT_ONCE):
        cameras = seen[start : start + _AT_ONCE]
        wanted = ((seen_of >= start) & (seen_of < start + len(cameras))).nonzero()[:, 0]
        axes = _lamp_axes(lamp_keys[wanted])
        strength, sky = strengths[wanted].unbind(-1)
        lamps = _Lamps(seen_of[wanted] - start, axes, strength, sky, map_of[wanted], depth, covered)
        pictures[wanted] = _pictures(cameras, lamps)
    return pictures


@lru_cache(maxsize=1)
def _all_solids() -> Solids:
    """Solids of all toys, by class and instance."""
    return Solids.of([toy_solids(kind, instance) for kind in range(len(CLASSES)) for instance in range(INSTANCES)])


# --- cameras ---------------------------------------------------------------------------------------------------------


def _direction(azimuth: Tensor, elevation: Tensor) -> Tensor:
    """Unit vectors (N, 3) towards an azimuth and an elevation, both in degrees."""
    across, up = azimuth * (math.pi / 180), elevation * (math.pi / 180)
    return torch.stack([across.sin() * up.cos(), up.sin(), across.cos() * up.cos()], -1)


def _camera(keys: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Place, view axis, right and up (V, 3) of cameras of keys (V, 4): toy, elevation, azimuth, camera."""
    elevation = torch.tensor(ELEVATIONS, dtype=torch.float32)[keys[:, 1]]
    around = -torch.tensor(AZIMUTHS, dtype=torch.float32)[keys[:, 2]]
    target = torch.tensor([0.0, _TARGET, 0.0])
    towards = _direction(around, elevation)
    right = F.normalize(torch.linalg.cross(torch.tensor([0.0, 1.0, 0.0]).expand_as(towards), towards), dim=-1)
    place = target + _DISTANCE * towards + right * (_ASIDE * (2.0 * keys[:, 3:] - 1))
    axis = F.normalize(target - place, dim=-1)
    right = F.normalize(torch.linalg.cross(axis, torch.tensor([0.0, 1.0, 0.0]).expand_as(axis)), dim=-1)
    return place, axis, right, torch.linalg.cross(right, axis)


def _rays(camera: tuple[Tensor, Tensor, Tensor, Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Unit vectors (V, T, S, 3) from cameras through points of the picture, in pixels from its left and its top."""
    _, axis, right, up = (part[:, None, None] for part in camera)
    across, high = (2 * x / SIZE - 1) * (_FIELD / _DISTANCE), (1 - 2 * y / SIZE) * (_FIELD / _DISTANCE)
    return F.normalize(axis + across[..., None] * right + high[..., None] * up, dim=-1)


def _surface(solids: Solids, place: Tensor, direction: Tensor) -> _Surface:
    """Points where rays from cameras (V, 3) in directions (V, T, S, 3) end, T · S for each view."""
    hits = first_hits(solids, place[:, None, None], direction)
    distance, normal, solid = (values.flatten(1, 2) for values in hits)
    direction = direction.flatten(1, 2)
    ground = -place[:, None, 1] / direction[..., 1]  # every camera looks down
    on_ground = distance >= ground
    at = place[:, None] + torch.where(on_ground, ground, distance)[..., None] * direction
    normal[on_ground] = torch.tensor([0.0, 1.0, 0.0])
    return _Surface(at, normal, solid.masked_fill(on_ground, -1))


def _by_rows(surface: _Surface) -> _Surface:
    """Points of all pixels, from tiles to rows."""
    tiles = SIZE // _TILE
    sides = (tiles, tiles, _TILE, _TILE)
    return _Surface(*(values.unflatten(1, sides).transpose(2, 3).flatten(1, 4) for values in surface))


def _edges(surface: _Surface) -> Tensor:
    """Pixels at an edge of a solid or between two of its faces, (V, H·W) of bool."""
    solid, normal = surface.solid.view(-1, SIZE, SIZE), surface.normal.view(-1, SIZE, SIZE, 3)
    edge = torch.zeros_like(solid, dtype=torch.bool)
    for axis in (1, 2):
        one, two = (solid.narrow(axis, start, SIZE - 1) for start in (0, 1))
        towards, other = (normal.narrow(axis, start, SIZE - 1) for start in (0, 1))
        differs = (one != two) | ((towards * other).sum(-1) < _SAME_FACE)
        for start in (0, 1):
            edge.narrow(axis, start, SIZE - 1).logical_or_(differs)
    return edge.flatten(1)


# --- light -----------------------------------------------------------------------------------------------------------


def _lamp_axes(keys: Tensor) -> Tensor:
    """Axes of lamps of keys (N, 3), which are toy, azimuth number and elevation: as columns (N, 3, 3); see _Lamps."""
    towards = _direction(20.0 * keys[:, 1], keys[:, 2].float())
    right = F.normalize(torch.linalg.cross(torch.tensor([0.0, 1.0, 0.0]).expand_as(towards), towards), dim=-1)
    return torch.stack([right, torch.linalg.cross(towards, right), towards], -1)


def _shadow_maps(keys: Tensor) -> Tensor:
    """How far towards its lamp each toy reaches, seen from there, (N, texels, texels); −∞ where no toy is."""
    right, up, towards = (axis[:, None, None] for axis in _lamp_axes(keys).unbind(-1))
    along = ((torch.arange(_MAP) + 0.5) / _MAP * 2 - 1) * _MAP_REACH
    y, x = (_in_tiles(values)[..., None] for values in torch.meshgrid(along, along, indexing="ij"))
    far = 10.0
    begin = far * towards + x * right + y * up
    hits = first_hits(_all_solids().select(keys[:, 0]), begin, -towards.expand_as(begin))
    tiles = _MAP // _TILE
    depth = (far - hits.distance).unflatten(2, (_TILE, _TILE)).unflatten(1, (tiles, tiles))
    return depth.transpose(2, 3).reshape(-1, _MAP, _MAP)


def _in_tiles(values: Tensor) -> Tensor:
    """Values of a square (H, H) by tiles, (tiles, pixels of a tile)."""
    tiles = len(values) // _TILE
    return values.view(tiles, _TILE, tiles, _TILE).transpose(1, 2).reshape(tiles * tiles, _TILE * _TILE)


def _light(surface: _Surface, lamps: _Lamps) -> Tensor:
    """Brightness of the points of V views in N pictures, (N, R), 0 to about 1."""
    bright = torch.empty(len(lamps.view), surface.at.shape[1])
    for view, (at, normal, solid) in enumerate(zip(*surface, strict=True)):
        pictures = (lamps.view == view).nonzero()[:, 0]
        lit = _light_on_ground(at, lamps, pictures)
        on_toy = (solid >= 0).nonzero()[:, 0]
        lit[:, on_toy] = _light_on_toys(at[on_toy], normal[on_toy], lamps, pictures)
        bright[pictures] = lit
    return bright


def _light_on_ground(at: Tensor, lamps: _Lamps, pictures: Tensor) -> Tensor:
    """Brightness in L pictures if every point were on the ground, (L, R).

    Args:
        at: coordinates of the points, (R, 3).
        lamps: lamps of all pictures.
        pictures: numbers of the pictures, all of one view, (L,).
    """
    axes = lamps.axes[pictures]  # (L, 3, 3)
    places = torch.stack([_along(axes[..., axis], at) for axis in (0, 1)], -1) / _MAP_REACH  # (L, R, 2) in −1..1
    shade = F.grid_sample(lamps.covered[lamps.shadow[pictures]], places[:, :, None], align_corners=False).flatten(1)
    lamp = (lamps.strength[pictures] * axes[:, 1, 2])[:, None]  # it falls at a slant
    return GROUND_BRIGHTNESS * (lamp * (1 - shade) + lamps.sky[pictures, None])


def _light_on_toys(at: Tensor, normal: Tensor, lamps: _Lamps, pictures: Tensor) -> Tensor:
    """Brightness of points on toys in L pictures, (L, R).

    Args:
        at: coordinates of the points, (R, 3).
        normal: unit vectors, (R, 3).
        lamps: lamps of all pictures.
        pictures: numbers of the pictures, all of one view, (L,).
    """
    right, up, towards = lamps.axes[pictures].unbind(-1)  # (L, 3) each
    slant = _along(towards, normal).clamp_min(0)  # (L, R)
    lifted = at + _OFFSET * normal
    across, high, near = (_along(axis, lifted) for axis in (right, up, towards))
    # comparisons with the four nearest texels, weighted by nearness
    free = torch.zeros_like(slant)
    (column, part_x), (row, part_y) = _texel(across), _texel(high)
    first = (lamps.shadow[pictures, None] * _MAP + row) * _MAP + column
    flat = lamps.depth.flatten()
    for column_after, row_after in ((0, 0), (1, 0), (0, 1), (1, 1)):
        weight = (part_x if column_after else 1 - part_x) * (part_y if row_after else 1 - part_y)
        free += weight * (near >= flat[first + (row_after * _MAP + column_after)])
    sky = lamps.sky[pictures, None] * (0.7 + 0.3 * normal[:, 1])  # from above, and a little from all around
    return TOY_BRIGHTNESS * (lamps.strength[pictures, None] * slant * free + sky)


def _along(axes: Tensor, points: Tensor) -> Tensor:
    """Coordinates of points (R, 3) along axes (L, 3), (L, R).

    Written out, because a matrix product may round one and the same point differently among more or fewer others, and
    a picture must not depend on the pictures drawn beside it.
    """
    (x, y, z), (dx, dy, dz) = points.unbind(-1), axes[:, :, None].unbind(1)
    return dx * x + dy * y + dz * z


def _texel(place: Tensor) -> tuple[Tensor, Tensor]:
    """Number of the texel below a place of a shadow map, along one side, and the share of the way to the next one."""
    texel = (place / _MAP_REACH + 1) / 2 * _MAP - 0.5
    below = texel.floor()
    return below.long().clamp(0, _MAP - 2), texel - below


# --- pictures --------------------------------------------------------------------------------------------------------


def _pictures(cameras: Tensor, lamps: _Lamps) -> Tensor:
    """Pictures of a few views, (N, 1, 96, 96) in uint8.

    Args:
        cameras: keys of the cameras of V views, (V, 4).
        lamps: lamps of the pictures.
    """
    solids, camera = _all_solids().select(cameras[:, 0]), _camera(cameras)
    middle = torch.arange(SIZE) + 0.5
    y, x = torch.meshgrid(middle, middle, indexing="ij")
    surface = _by_rows(_surface(solids, camera[0], _rays(camera, _in_tiles(x), _in_tiles(y))))
    bright = _light(surface, lamps)
    # pixels at edges are divided; views with fewer of them get others to divide in vain, so that all have as many
    edge = _edges(surface)
    most = int(edge.sum(1).max())
    at_edge = edge.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]  # (V, E)
    if most:
        right, down = torch.tensor(_SUBSAMPLES).unbind(-1)
        parts = _rays(camera, x.flatten()[at_edge][..., None] + right, y.flatten()[at_edge][..., None] + down)
        softened = _light(_surface(solids, camera[0], parts), lamps).unflatten(1, (most, -1)).mean(-1)  # (N, E)
        places, is_edge = at_edge[lamps.view], edge.gather(1, at_edge)[lamps.view]
        bright.scatter_(1, places, torch.where(is_edge, softened, bright.gather(1, places)))
    return (255 * bright).round().clamp(0, 255).to(torch.uint8).view(-1, 1, SIZE, SIZE)
