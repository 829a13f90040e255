"""Shapes of toys: five classes of things built of simple solids, ten different ones of each class.

A toy stands on the ground, y = 0, looks along +x, and is scaled so that all toys are about equally large. What differs
between the toys of a class (lengths, postures, parts that only some have) follows from random numbers of the toy.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from paircaps.data.randomness import uniform
from paircaps.data.synthetic.solids import BALL, BOX, CYLINDER, Solid

CLASSES = ("animal", "human", "airplane", "truck", "car")
"""Classes of toys, those of smallNORB, in its order."""

INSTANCES = 10
"""Toys of each class."""

_DRAWS = 24
_PURPOSE = "shape of a toy"  # part of the hash that random numbers come from: never rename it


class _Choices:
    """Random numbers of one toy, taken one after the other."""

    def __init__(self, numbers: list[float]) -> None:
        self._numbers = iter(numbers)

    def between(self, least: float, most: float) -> float:
        """A number between two."""
        return least + (most - least) * next(self._numbers)

    def happens(self, share: float) -> bool:
        """True for a share of the toys."""
        return next(self._numbers) < share


def toy_solids(kind: int, instance: int) -> list[Solid]:
    """Solids of a toy, standing on the ground around the origin.

    Args:
        kind: number of its class in ``CLASSES``.
        instance: number of the toy in its class, 0 to 9.
    """
    numbers = uniform(0, 0, torch.tensor([kind * INSTANCES + instance]), _DRAWS, _PURPOSE)[0].tolist()
    return _stood_up(_BUILDERS[CLASSES[kind]](_Choices(numbers)))


# --- solids between points -------------------------------------------------------------------------------------------


def _ball(centre: tuple[float, float, float], half: tuple[float, float, float], pitch: float = 0.0) -> Solid:
    """Ellipsoid, turned by ``pitch`` degrees so that its front goes up."""
    return Solid(BALL, torch.tensor(centre), torch.tensor(half), _turned(pitch))


def _box(
    centre: tuple[float, float, float],
    half: tuple[float, float, float],
    taper: float = 0.0,
    pitch: float = 0.0,
    heading: float = 0.0,
) -> Solid:
    """Box that narrows to the top, turned by ``heading`` degrees to the left and ``pitch`` degrees up."""
    return Solid(BOX, torch.tensor(centre), torch.tensor(half), _turned(pitch, heading), taper)


def _tube(
    begin: tuple[float, float, float], end: tuple[float, float, float], radius: float, last_radius: float | None = None
) -> Solid:
    """Cylinder from one point to another, with one radius at its beginning and a smaller one at its end."""
    first, last = torch.tensor(begin), torch.tensor(end)
    if last_radius is not None and last_radius > radius:
        return _tube(end, begin, last_radius, radius)
    axis = F.normalize(last - first, dim=0)
    aside = torch.tensor([0.0, 0.0, 1.0]) if abs(axis[2]) < 0.9 else torch.tensor([1.0, 0.0, 0.0])
    third = F.normalize(torch.linalg.cross(axis, aside), dim=0)
    turn = torch.stack([torch.linalg.cross(third, axis), axis, third], 1)
    half = torch.tensor([radius, float((last - first).norm()) / 2, radius])
    taper = 0.0 if last_radius is None else 1 - last_radius / radius
    return Solid(CYLINDER, (first + last) / 2, half, turn, taper)


def _both_sides(
    make: Callable[[float], Solid],
) -> list[Solid]:
    """A solid for each side: ``make`` is called with 1 for the right and −1 for the left."""
    return [make(1.0), make(-1.0)]


def _turned(pitch: float, heading: float = 0.0) -> Tensor:
    up, left = math.radians(pitch), math.radians(heading)
    about_z = torch.tensor([[math.cos(up), -math.sin(up), 0], [math.sin(up), math.cos(up), 0], [0, 0, 1]])
    about_y = torch.tensor([[math.cos(left), 0, math.sin(left)], [0, 1, 0], [-math.sin(left), 0, math.cos(left)]])
    return about_y @ about_z


def _stood_up(solids: list[Solid]) -> list[Solid]:
    """The solids, moved onto the ground and over the origin, and scaled to the common size."""
    reach = torch.stack([_extent(solid) for solid in solids])
    centres = torch.stack([solid.centre for solid in solids])
    least, most = (centres - reach).amin(0), (centres + reach).amax(0)
    shift = -(least + most) / 2
    shift[1] = -least[1]
    size = most - least
    scale = 1 / max(float(size[[0, 2]].norm()) / 2, 0.62 * float(size[1]))
    return [solid.moved(shift, scale) for solid in solids]


def _extent(solid: Solid) -> Tensor:
    """Half the sides of the box along the axes of the world around a solid; of a box and a cylinder, at most."""
    spread = solid.turn * solid.half
    if solid.kind == BALL:
        return spread.norm(dim=1)
    if solid.kind == BOX:
        return spread.abs().sum(1)
    return spread[:, [0, 2]].norm(dim=1) + spread[:, 1].abs()


# --- five classes ----------------------------------------------------------------------------------------------------


def _animal(choose: _Choices) -> list[Solid]:
    """Four legs, a body, a neck with a head, ears or horns, a tail; from pig to giraffe."""
    length, girth, legs = choose.between(0.5, 0.8), choose.between(0.2, 0.36), choose.between(0.22, 0.6)
    leg_radius, stride = choose.between(0.05, 0.1), choose.between(-0.12, 0.12)
    neck, lean = choose.between(0.02, 0.5), math.radians(choose.between(30, 75))
    skull, snout = choose.between(0.13, 0.22), choose.between(0.08, 0.3)
    back = legs + 0.75 * girth
    body = [_ball((0, back, 0), (length, girth, 0.8 * girth), choose.between(-6, 10))]
    for end, step in ((0.62, stride), (-0.62, -stride)):
        x, z = end * length, 0.5 * girth
        body += [_tube((x, back, z), (x + step, 0, z), 1.3 * leg_radius, leg_radius)]
        body += [_tube((x, back, -z), (x - step, 0, -z), 1.3 * leg_radius, leg_radius)]
    shoulder = (0.75 * length, back + 0.35 * girth)
    reach = 0.18 + neck
    head = (shoulder[0] + reach * math.cos(lean), shoulder[1] + reach * math.sin(lean))
    body += [_tube((*shoulder, 0), (*head, 0), 0.6 * girth, 0.75 * skull)]
    body += [_ball((*head, 0), (1.2 * skull, skull, 0.9 * skull), -15)]
    body += [_tube((*head, 0), (head[0] + skull + snout, head[1] - 0.5 * snout, 0), 0.7 * skull, 0.4 * skull)]
    ear, pointed = choose.between(0.06, 0.18), choose.happens(0.5)
    top = head[1] + 0.8 * skull

    def make_ear(side: float) -> Solid:
        if pointed:
            return _tube(
                (head[0], top - 0.05, side * 0.6 * skull), (head[0], top + 2 * ear, side * 0.8 * skull), 0.05, 0
            )
        return _ball((head[0] - 0.05, top, side * 0.9 * skull), (0.04, ear, 0.7 * ear))

    body += _both_sides(make_ear)
    tail, droop = choose.between(0.15, 0.55), choose.between(-0.9, 0.9)
    rump = (-0.92 * length, back + 0.3 * girth)
    return [*body, _tube((*rump, 0), (rump[0] - tail, rump[1] + tail * droop, 0), 0.05, 0.03)]


def _human(choose: _Choices) -> list[Solid]:
    """Two legs, a trunk, two arms and a head, in any posture, some with a hat or a bag."""
    legs, trunk, shoulders = choose.between(0.7, 0.95), choose.between(0.45, 0.62), choose.between(0.17, 0.27)
    thick, stride, apart = choose.between(0.07, 0.12), choose.between(0.0, 0.4), choose.between(0.1, 0.22)
    lean = choose.between(-0.04, 0.12)
    hip, neck = (0.0, legs), (lean, legs + trunk)
    parts = _both_sides(
        lambda side: _tube(
            (hip[0], hip[1], 0.4 * shoulders * side), (side * stride, 0, apart * side), 1.25 * thick, thick
        )
    )
    parts += _both_sides(lambda side: _ball((side * stride + 0.07, 0.045, apart * side), (0.16, 0.05, 0.075)))
    parts += [_tube((*hip, 0), (*neck, 0), 0.7 * shoulders, 0.68 * shoulders)]
    parts += [_ball((neck[0], neck[1] - 0.1, 0), (0.75 * shoulders, 0.18, 1.1 * shoulders))]
    head = choose.between(0.13, 0.19)
    parts += [_ball((neck[0] + 0.03, neck[1] + 0.06 + head, 0), (head, 1.15 * head, 0.92 * head))]
    raised = (choose.between(-80, 75), choose.between(-80, 75))
    forward = (choose.between(-0.3, 0.8), choose.between(-0.3, 0.8))
    arm = choose.between(0.5, 0.62)
    for side, up, front in ((1.0, raised[0], forward[0]), (-1.0, raised[1], forward[1])):
        start = torch.tensor([neck[0], neck[1] - 0.08, side * 1.05 * shoulders])
        angle = math.radians(up)
        way = torch.tensor([front, math.sin(angle), side * (0.15 + 0.7 * math.cos(angle) ** 2)])
        hand = start + arm * F.normalize(way, dim=0)
        parts += [
            _tube(_point(start), _point(hand), 0.85 * thick, 0.55 * thick),
            _ball(_point(hand), (0.07, 0.07, 0.07)),
        ]
    top = neck[1] + 0.06 + 2.1 * head
    if choose.happens(0.4):
        parts += [_tube((neck[0] + 0.03, top - 0.08, 0), (neck[0] + 0.03, top + 0.02 + head, 0), head, 0.7 * head)]
        parts += [_tube((neck[0] + 0.03, top - 0.1, 0), (neck[0] + 0.03, top - 0.06, 0), 1.7 * head)]
    if choose.happens(0.4):
        parts += [_box((neck[0] - shoulders, legs + 0.6 * trunk, 0), (0.11, 0.2, 0.16))]
    return parts


def _airplane(choose: _Choices) -> list[Solid]:
    """A fuselage, wings, a tail and engines or a propeller, on its wheels."""
    length, radius = choose.between(0.85, 1.05), choose.between(0.1, 0.2)
    height, sweep = choose.between(0.3, 0.45), choose.between(-5, 38)
    span, chord = choose.between(0.65, 1.05), choose.between(0.13, 0.24)
    at, lift = choose.between(-0.05, 0.3), choose.between(-0.9, 0.9) * radius
    parts = [_ball((0, height, 0), (length, radius, radius))]
    parts += [_tube((-0.35 * length, height, 0), (0.6 * length, height, 0), 0.97 * radius, 0.9 * radius)]

    def make_wing(side: float) -> Solid:
        back = math.tan(math.radians(sweep)) * span / 2
        return _box((at - back, height + lift, side * span / 2), (chord, 0.025, span / 1.85), 0.0, 0.0, side * sweep)

    parts += _both_sides(make_wing)
    fin, tail_span = choose.between(0.22, 0.42), choose.between(0.25, 0.42)
    parts += [_box((-0.85 * length, height + radius / 2 + fin / 2, 0), (0.16, fin / 1.7, 0.025), 0.35, -12)]
    on_top = fin if choose.happens(0.3) else 0.1 * radius
    parts += [_box((-0.9 * length, height + on_top + radius / 2, 0), (0.11, 0.02, tail_span))]
    if choose.happens(0.6):
        out, below = choose.between(0.3, 0.5) * span, choose.between(0.06, 0.1)
        engine = choose.between(0.06, 0.1)
        back = math.tan(math.radians(sweep)) * out
        parts += _both_sides(
            lambda side: _tube(
                (at - back + 0.28, height + lift - below, side * out),
                (at - back - 0.14, height + lift - below, side * out),
                engine,
                0.7 * engine,
            )
        )
    else:
        blade = choose.between(0.28, 0.4)
        parts += [
            _box((length + 0.01, height, 0), (0.015, blade, 0.04)),
            _ball((length, height, 0), (0.09, 0.06, 0.06)),
        ]
    if choose.happens(0.5):
        parts += [_ball((0.35 * length, height + 0.8 * radius, 0), (0.22, 0.1, 0.75 * radius))]
    for x, z in ((0.55 * length, 0.0), (-0.05, 0.22), (-0.05, -0.22)):
        parts += [_tube((x, height - 0.5 * radius, z), (x, 0.06, z), 0.03), _wheel(x, z, 0.07, 0.03)]
    return parts


def _truck(choose: _Choices) -> list[Solid]:
    """A cab in front of a load: a case, a tank, or a bed with low sides; three or four axles."""
    length, width = choose.between(0.85, 1.1), choose.between(0.26, 0.34)
    wheel, floor = choose.between(0.12, 0.17), 0.0
    floor = 1.5 * wheel
    cab_length, cab_height = choose.between(0.18, 0.26), choose.between(0.3, 0.42)
    nose = choose.between(-0.1, 0.28)
    parts = [_box((0, floor, 0), (length, 0.06, 0.8 * width))]
    cab_x = length - cab_length - max(nose, 0.0)
    parts += [_box((cab_x, floor + cab_height, 0), (cab_length, cab_height, width), choose.between(0.0, 0.2))]
    if nose > 0.08:
        parts += [
            _box((length - nose / 2, floor + 0.42 * cab_height, 0), (nose / 2 + 0.03, 0.42 * cab_height, 0.92 * width))
        ]
    rear = cab_x - cab_length - 0.06
    load, middle = (rear + length) / 2, (rear - length) / 2
    load_height, sort = choose.between(0.3, 0.5), choose.between(0, 1)
    if sort < 0.45:
        parts += [_box((middle, floor + load_height, 0), (load, load_height, 1.02 * width))]
    elif sort < 0.7:
        radius = 0.8 * load_height
        parts += [_tube((middle - load, floor + radius, 0), (middle + load, floor + radius, 0), radius)]
        parts += [_ball((middle - load, floor + radius, 0), (0.1, radius, radius))]
    else:
        rim = 0.35 * load_height
        parts += [_box((middle, floor + rim, side * width), (load, rim, 0.025)) for side in (1.0, -1.0)]
        parts += [_box((middle - load, floor + rim, 0), (0.025, rim, width))]
        if choose.happens(0.6):
            parts += [_ball((middle, floor + rim, 0), (0.8 * load, 1.1 * load_height, 0.8 * width))]
    axles = [length - 1.6 * wheel, middle, middle - 0.75 * load] + (
        [middle + 0.4 * load] if choose.happens(0.4) else []
    )
    return parts + [_wheel(x, side * 0.9 * width, wheel, 0.06) for x in axles for side in (1.0, -1.0)]


def _car(choose: _Choices) -> list[Solid]:
    """A low body, a cabin and four wheels; from sports car to van."""
    length, width, belly = choose.between(0.8, 0.98), choose.between(0.34, 0.42), choose.between(0.13, 0.19)
    wheel = choose.between(0.14, 0.19)
    low = 0.8 * wheel + belly
    rounded = choose.happens(0.5)
    parts = [_box((0, low, 0), (length, belly, width), choose.between(0.02, 0.14))]
    if rounded:
        parts += [_ball((0.55 * length, low + 0.3 * belly, 0), (0.5 * length, belly, 0.95 * width))]
        parts += [_ball((-0.55 * length, low + 0.3 * belly, 0), (0.5 * length, 1.05 * belly, 0.95 * width))]
    cabin, roof = choose.between(0.36, 0.62) * length, choose.between(0.13, 0.24)
    at = choose.between(-0.28, 0.02) * length
    if choose.happens(0.25):  # a roof as of a beetle
        parts += [_ball((at, low + 0.8 * belly, 0), (1.15 * cabin, 0.5 * belly + 2 * roof, 0.92 * width))]
    else:
        parts += [_box((at, low + belly + roof, 0), (cabin, roof, 0.94 * width), choose.between(0.15, 0.5))]
    if choose.happens(0.35):  # a wing at the back
        parts += [_box((-0.92 * length, low + belly + 0.1, 0), (0.08, 0.015, 0.9 * width))]
        parts += _both_sides(
            lambda side: _box((-0.92 * length, low + belly + 0.05, 0.6 * side * width), (0.03, 0.06, 0.015))
        )
    if choose.happens(0.3):  # on the roof
        parts += [_box((at, low + belly + 2 * roof + 0.06, 0), (0.5 * cabin, 0.05, 0.5 * width))]
    parts += _both_sides(
        lambda side: _ball((0.98 * length, low + 0.2 * belly, 0.62 * side * width), (0.05, 0.06, 0.06))
    )
    axle = choose.between(0.56, 0.68) * length
    return parts + [_wheel(x, side * 0.93 * width, wheel, 0.07) for x in (axle, -axle) for side in (1.0, -1.0)]


def _wheel(x: float, z: float, radius: float, half_width: float) -> Solid:
    """Wheel on the ground, its axle across."""
    return _tube((x, radius, z - half_width), (x, radius, z + half_width), radius)


def _point(at: Tensor) -> tuple[float, float, float]:
    x, y, z = at.tolist()
    return x, y, z


_BUILDERS: dict[str, Callable[[_Choices], list[Solid]]] = {
    "animal": _animal,
    "human": _human,
    "airplane": _airplane,
    "truck": _truck,
    "car": _car,
}
