"""Pictures of toys: pure functions of their views, with light and shadow where they belong."""

import math

import pytest
import torch
import torch.nn.functional as F

from paircaps.data.sources.toys import DRAWING
from paircaps.data.synthetic import toy_views
from paircaps.data.synthetic.solids import BALL, BOX, CYLINDER, Solid, Solids
from paircaps.data.synthetic.toy_shapes import CLASSES, INSTANCES, toy_solids
from paircaps.data.synthetic.toy_views import GROUND_BRIGHTNESS, LIGHTINGS, SIZE, TOY_BRIGHTNESS, Views, draw_toys

KIND = dict(zip(CLASSES, range(5), strict=True))


def views(count=1, **numbers) -> Views:
    chosen = {name: torch.zeros(count, dtype=torch.long) for name in Views._fields}
    return Views(**{**chosen, **{name: torch.as_tensor(value).expand(count) for name, value in numbers.items()}})


def some_views(count: int) -> Views:
    generator = torch.Generator().manual_seed(0)
    most = (5, 10, 9, 18, 6, 2)
    return Views(*(torch.randint(size, (count,), generator=generator) for size in most))


def unshaded(lighting: int) -> int:
    """Grey of ground in full light."""
    _, elevation, lamp, sky = LIGHTINGS[lighting]
    return round(255 * GROUND_BRIGHTNESS * (lamp * torch.tensor(elevation * torch.pi / 180).sin().item() + sky))


def test_a_picture_does_not_depend_on_those_drawn_with_it():
    wanted = some_views(24)
    together = draw_toys(wanted)
    alone = torch.cat([draw_toys(Views(*(part[i : i + 1] for part in wanted))) for i in range(24)])
    assert together.shape == (24, 1, SIZE, SIZE)
    assert together.dtype == torch.uint8
    assert torch.equal(together, alone)
    assert torch.equal(draw_toys(Views(*(part.flip(0) for part in wanted))).flip(0), together)


def test_every_number_of_a_view_changes_the_picture():
    plain = draw_toys(views())
    for name in Views._fields:
        other = draw_toys(views(**{name: 1}))
        assert (other != plain).float().mean() > 0.01, name


def test_no_pictures_at_all():
    assert draw_toys(views(0)).shape == (0, 1, SIZE, SIZE)


def test_toys_differ_and_stand_on_the_ground():
    seen = set()
    for kind in range(len(CLASSES)):
        for instance in range(INSTANCES):
            solids = toy_solids(kind, instance)
            seen.add(tuple(round(value, 4) for solid in solids for value in solid.half.tolist()))
            lowest = min(float(solid.centre[1]) - float((solid.turn * solid.half)[1].norm()) for solid in solids)
            assert -0.02 < lowest < 0.2, (CLASSES[kind], instance)  # the middle part of the lowest solid is near it
            assert max(float(solid.centre.norm()) for solid in solids) < 2
    assert len(seen) == len(CLASSES) * INSTANCES


@pytest.mark.parametrize("lighting", range(len(LIGHTINGS)))
def test_ground_in_full_light_has_the_light_of_its_lamp(lighting):
    picture = draw_toys(views(kind=KIND["airplane"], lighting=lighting))[0, 0]
    values, counts = picture.unique(return_counts=True)
    assert abs(int(values[counts.argmax()]) - unshaded(lighting)) <= 1


def test_a_shadow_falls_away_from_the_lamp():
    """A lamp at the left of the camera throws the shadow of a person to the right, and the other way round."""
    centres = []
    for lighting in (2, 3):  # 100° to the left, and to the right
        picture = draw_toys(views(kind=KIND["human"], lighting=lighting))[0, 0].float()
        ground = GROUND_BRIGHTNESS * LIGHTINGS[lighting][3] * 255  # of the sky alone
        shadow = (picture - ground).abs() < 1.5
        assert shadow.float().mean() > 0.01
        centres.append(float(torch.arange(SIZE).expand(SIZE, -1)[shadow].float().mean()))
    assert centres[0] > SIZE / 2 + 5
    assert centres[1] < SIZE / 2 - 5


def test_a_toy_turns_by_its_azimuth():
    """A truck seen from its side is wider than one that was turned by 80°, which shows its front."""
    front, side = (draw_toys(views(kind=KIND["truck"], azimuth=azimuth, lighting=5))[0, 0] for azimuth in (4, 0))
    wide = [(picture.int() - unshaded(5)).abs().amax(0).gt(4).sum().item() for picture in (front, side)]
    assert wide[1] > wide[0]


def test_the_second_camera_sees_the_toy_moved_and_the_ground_the_same():
    left, right = (draw_toys(views(kind=KIND["car"], camera=camera))[0, 0].float() for camera in (0, 1))
    assert (left - right).abs().mean() > 0.5
    assert left[0, 0] == right[0, 0]


def test_a_person_seen_from_high_up_is_shorter():
    low, high = (
        draw_toys(views(kind=KIND["human"], elevation=elevation, lighting=4))[0, 0] for elevation in (0, 8)
    )  # the lamp is behind the person, so that its shadow falls towards the camera
    tops = [(picture[:48].int() - unshaded(4)).abs().amax(1).gt(4).sum().item() for picture in (low, high)]
    assert tops[0] > 1.3 * tops[1]


@pytest.fixture
def scene(monkeypatch):
    """Put some solids in the place of the first toy."""

    def put(*solids: Solid) -> None:
        monkeypatch.setattr(toy_views, "_all_solids", lambda: Solids.of([solids]))

    return put


def solid(kind: int, centre, half, taper: float = 0.0) -> Solid:
    return Solid(kind, torch.tensor(centre), torch.tensor(half), torch.eye(3), taper)


def grey(lighting: int, lamp: float, sky: float) -> float:
    """Grey of a toy that gets shares of the light of a lamp and of the sky."""
    _, _, of_lamp, of_sky = LIGHTINGS[lighting]
    return 255 * TOY_BRIGHTNESS * (of_lamp * lamp + of_sky * sky)


def seen_at(point, **view) -> tuple[int, int]:
    """Row and column at which a camera sees a point: its place along the camera's axes, by hand."""
    keys = torch.tensor([[0, view.get("elevation", 0), view.get("azimuth", 0), view.get("camera", 0)]])
    place, axis, right, up = (part[0] for part in toy_views._camera(keys))
    away = torch.tensor(point) - place
    scale = SIZE / 2 * toy_views._DISTANCE / toy_views._FIELD / float(away @ axis)
    return int(SIZE / 2 - float(away @ up) * scale), int(SIZE / 2 + float(away @ right) * scale)


@pytest.mark.parametrize("lighting", range(len(LIGHTINGS)))
def test_faces_have_the_light_of_the_lamp_that_they_look_at_and_of_the_sky(scene, lighting):
    """The top of a box, and the side that looks at the camera."""
    scene(solid(BOX, (0.0, 0.5, 0.0), (0.6, 0.5, 0.4)))
    picture = draw_toys(views(lighting=lighting))[0, 0]
    around, up = (math.radians(angle) for angle in LIGHTINGS[lighting][:2])
    top, front = picture[seen_at((0.0, 1.0, 0.0))], picture[seen_at((0.0, 0.5, 0.4))]
    assert int(top) == pytest.approx(
        grey(lighting, math.sin(up), 1.0), abs=3
    )  # a face slants within a texel of the map
    towards_camera = max(0.0, math.cos(up) * math.cos(around))  # the side looks along +z, as the camera stands
    assert int(front) == pytest.approx(grey(lighting, towards_camera, 0.7), abs=1)


def test_a_toy_throws_a_shadow_on_itself(scene):
    """A ball above a table: the ray from the ball's middle away from the lamp ends in its shadow."""
    lighting, height = 1, 0.8
    scene(solid(BOX, (0.0, 0.1, 0.0), (0.9, 0.1, 0.9)), solid(BALL, (0.0, 0.2 + height, 0.0), (0.2, 0.2, 0.2)))
    picture = draw_toys(views(lighting=lighting, elevation=8))[0, 0]
    around, up = (math.radians(angle) for angle in LIGHTINGS[lighting][:2])
    away = height / math.tan(up)
    shaded = (-away * math.sin(around), 0.2, -away * math.cos(around))
    lit = (-shaded[0], 0.2, -shaded[2])
    assert int(picture[seen_at(shaded, elevation=8)]) == pytest.approx(grey(lighting, 0.0, 1.0), abs=1)
    assert int(picture[seen_at(lit, elevation=8)]) == pytest.approx(grey(lighting, math.sin(up), 1.0), abs=1)


def test_lamps_stand_still_when_a_toy_turns(scene):
    """A cone looks the same from all around, so its pictures are the same under each lighting, with all shadows."""
    scene(solid(CYLINDER, (0.0, 0.6, 0.0), (0.5, 0.6, 0.5), 0.8))
    for lighting in range(len(LIGHTINGS)):
        pictures = draw_toys(views(4, lighting=lighting, azimuth=torch.tensor([0, 3, 8, 13]))).float()
        # texels of the shadow map lie otherwise, so pixels at the border of the shadow differ
        assert ((pictures[1:] - pictures[0]).abs() > 8).float().mean() < 0.01


def test_a_toy_turns_to_the_left_as_seen_from_above(scene):
    """What is at its right, at azimuth 0, is farther away from the camera at 20°, 40° and so on."""
    scene(solid(BALL, (0.8, 0.2, 0.0), (0.2, 0.2, 0.2)))
    rows = []
    for azimuth in (0, 2, 4):
        dark = (draw_toys(views(azimuth=azimuth, lighting=5))[0, 0].int() - unshaded(5)).abs() > 20
        rows.append(float(dark.nonzero()[:, 0].float().mean()))
    assert rows[0] > rows[1] + 1 > rows[2] + 2


def test_the_left_camera_sees_what_is_near_farther_to_the_right(scene):
    scene(solid(BALL, (0.0, 0.4, 0.8), (0.2, 0.2, 0.2)))
    columns = []
    for camera in (0, 1):
        changed = (draw_toys(views(camera=camera, lighting=5))[0, 0].int() - unshaded(5)).abs() > 4
        columns.append(float(changed.nonzero()[:, 1].float().mean()))
    assert columns[0] > columns[1] + 0.5


def test_edges_are_soft_and_nothing_else_changes_by_that(monkeypatch):
    soft = draw_toys(views(kind=KIND["car"], azimuth=1))[0, 0].int()
    monkeypatch.setattr(toy_views, "_SUBSAMPLES", ((0.0, 0.0),))
    hard = draw_toys(views(kind=KIND["car"], azimuth=1))[0, 0].int()
    changed = (soft - hard).abs() > 2
    assert 0.01 < changed.float().mean() < 0.15
    steps = [int(picture.diff(dim=1).abs().max()) for picture in (soft, hard)]
    rough = [int(picture.diff(dim=1).square().sum()) for picture in (soft, hard)]
    assert steps[0] <= steps[1]
    assert rough[0] < 0.9 * rough[1]


FINGERPRINTS = [
    [170.0, 170.0, 166.27, 153.49, 117.64, 144.76, 169.54, 169.43, 170.0, 2.13],
    [169.94, 140.54, 168.33, 135.58, 129.83, 170.0, 169.95, 169.73, 170.0, 2.63],
    [145.0, 143.85, 145.0, 142.92, 116.94, 125.38, 145.0, 136.21, 118.89, 2.42],
    [143.32, 145.0, 144.99, 77.04, 59.83, 98.68, 122.08, 128.32, 143.41, 1.75],
    [185.0, 178.99, 181.61, 183.96, 109.77, 165.1, 167.98, 113.88, 184.08, 2.84],
]


def test_toys_are_drawn_as_ever():
    """Whoever draws them otherwise raises ``toys.DRAWING``, or kept pictures of two kinds are mixed.

    Of five pictures, the means of nine parts, and how much neighbouring pixels differ; other processors may round a
    few pixels differently.
    """
    numbers = {"instance": [4, 0, 1, 2, 3], "elevation": [0, 2, 4, 6, 8], "azimuth": [0, 3, 6, 9, 12]}
    fixed = {name: torch.tensor(value) for name, value in numbers.items()}
    pictures = draw_toys(views(5, kind=torch.arange(5), lighting=torch.arange(5), **fixed)).float()
    parts = F.avg_pool2d(pictures, 32).flatten(1)
    rough = pictures.diff(dim=-1).abs().mean((1, 2, 3))
    known = torch.tensor(FINGERPRINTS)
    assert DRAWING == 1
    torch.testing.assert_close(parts, known[:, :9], rtol=0, atol=0.1)
    torch.testing.assert_close(rough, known[:, 9], rtol=0, atol=0.02)


def test_a_point_is_rounded_as_it_is_alone():
    """Matrix products rounded two of some million pixels differently when other pictures were drawn beside them."""
    points, axes = (torch.randn(count, 3, generator=torch.manual_seed(0)) for count in (4001, 6))
    together = toy_views._along(axes, points)
    alone = torch.stack([toy_views._along(axes[:1], point[None])[0, 0] for point in points])
    assert torch.equal(together[0], alone)
    torch.testing.assert_close(together, axes @ points.T)
