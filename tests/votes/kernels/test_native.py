"""The C kernel, for each kind of instructions, against the plain computation in float64 and the tiles in float32."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from votes.kernels.cases import (
    Case,
    by,
    coupled,
    coupled_in_full,
    in_full,
    require_as_exact_as_the_tiles,
    runnable_levels,
)

from paircaps import CapsuleLayer
from paircaps.votes.kernels import choice, native

SIZES = {
    "1 image": (1, 97, 7, 4, 4, 4),
    "3x3": (7, 97, 7, 3, 3, 3),
    "129 images": (129, 9, 3, 4, 4, 4),
    "8 to 16": (33, 9, 17, 1, 8, 16),
    "16 to 16": (7, 97, 7, 1, 16, 16),
    "9 to 9": (129, 5, 2, 1, 9, 9),
    "12 to 12": (7, 33, 7, 1, 12, 12),
    "5 to 9": (33, 33, 2, 1, 5, 9),
    "2x3 to 2x5": (16, 9, 3, 2, 3, 5),
    "few": (5, 3, 2, 1, 2, 3),
}
"""B, I, J, P, Q and R."""

PLAIN = {"normalize": False}
OPTIONS = {
    "unit": {},
    "soft": {"soft": True},
    "weighed": {"weighed": True},
    "soft, weighed": {"soft": True, "weighed": True},
    "long": PLAIN,
    "long, weighed": {**PLAIN, "weighed": True},
    "unscaled": {"unscaled": 1},  # is of no account without a norm
    "long, unscaled": {**PLAIN, "unscaled": 1},
}
FORMS = [(norm, name) for norm in ("pose", "vote", None) for name in OPTIONS if norm or "unscaled" not in name]


@pytest.mark.parametrize(("norm", "options"), FORMS)
@pytest.mark.parametrize("sizes", SIZES)
def test_sums_and_gradients_are_as_exact_as_those_of_the_tiles(sizes, norm, options, compiled_for):
    case = Case(*SIZES[sizes], norm, **OPTIONS[options])
    arguments, slopes = case.arguments(), case.slopes()
    tiles, truth = by("tiles", arguments, slopes), in_full(arguments, slopes)
    for level in runnable_levels():
        compiled_for(level)
        require_as_exact_as_the_tiles(by("c", arguments, slopes), tiles, truth)


@pytest.mark.parametrize("norm", ["pose", "vote", None])
@pytest.mark.parametrize("sizes", SIZES)
def test_coupled_sums_and_gradients_are_as_exact_as_the_plain_computation_in_float32(sizes, norm, compiled_for):
    case = Case(*SIZES[sizes], norm, normalize=False, unscaled=1 if norm == "pose" else 0)
    arguments, (agreed, slope) = case.arguments(), case.slopes()
    agreed = 0.3 * agreed  # so that a child is coupled to several parents
    plain, truth = (coupled_in_full(arguments, agreed, slope, dtype) for dtype in (torch.float32, torch.float64))
    for level in runnable_levels():
        compiled_for(level)
        require_as_exact_as_the_tiles(coupled(arguments, agreed, slope), plain.values, truth, slack=2e-6)


def test_many_children_do_not_add_up_rounding_errors(level):
    """Votes near each other, whose sums would lose digits in float32."""
    case = Case(8, 6000, 2, 2, 2, 2, normalize=False)
    arguments = case.arguments()
    arguments = arguments._replace(u=1 + arguments.u.abs(), weight=1 + arguments.weight.abs())
    slopes = case.slopes()
    expected = by("tiles", arguments, slopes), in_full(arguments, slopes)
    require_as_exact_as_the_tiles(by("c", arguments, slopes), *expected, slack=1e-7)


def test_the_gradient_of_a_softness_does_not_add_up_rounding_errors(level):
    """It is one number for a million votes; in float32 it would be off by ten times as much."""
    errors = []
    for seed in range(4):
        case = Case(1024, 8, 32, 2, 2, 2, "pose", soft=True, seed=seed)
        arguments, slopes = case.arguments(), case.slopes()
        truth = in_full(arguments, slopes)
        error = by("c", arguments, slopes)["d softness"] - truth.values["d softness"]
        errors.append(abs(error.item()) / truth.sizes["d softness"])
    assert max(errors) < 1e-7


# --- the same bits --------------------------------------------------------------------------------------------------


@pytest.fixture
def threads():
    """Sets the number of threads, and sets it back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "case",
    [
        Case(129, 97, 7, 4, 4, 4, "pose", soft=True),
        Case(70, 33, 40, 1, 8, 16, "vote", weighed=True),
        Case(7, 3, 7, 3, 3, 3, "pose", normalize=False),
    ],
)
def test_any_number_of_threads_and_any_run_give_the_same_bits(case, level, threads, monkeypatch):
    monkeypatch.setattr(native, "FLOPS_PER_THREAD", 1)  # as many as there may be
    arguments, slopes = case.arguments(), case.slopes()

    def everything():
        return {**by("c", arguments, slopes), **{f"coupled {n}": v for n, v in coupled(arguments, *slopes).items()}}

    threads(1)
    expected = everything()
    for number in (2, 3, 3, 3, 1):
        threads(number)
        found = everything()
        for name, value in expected.items():
            assert torch.equal(found[name], value), f"{name} on {number} threads"


@pytest.mark.parametrize("affine", ["pose", None])
def test_sums_in_double_precision_are_the_same_bits_too(affine, level, threads, monkeypatch):
    """Gradients that all tasks share; rounded to float32 they would hide in which order they were added up.

    Of sizes far apart, so that sums in double precision are rounded as well.
    """
    monkeypatch.setattr(native, "FLOPS_PER_THREAD", 1)
    case = Case(40, 97, 7, 4, 4, 4, affine, soft=True)
    arguments = case.arguments()
    slopes = [slope * torch.logspace(-12, 12, 7)[:, None] for slope in case.slopes()]
    found = []
    for number in (1, 2, 3):
        threads(number)
        job = native._JobOf(arguments)
        job.given("grad_total", slopes[0])
        job.given("grad_squares", slopes[1])
        job.gradients("paircaps_gradients", arguments)
        found += [tensor for tensor in job.tensors if tensor.dtype == torch.float64]
    assert len(found) == 3
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_few_votes_are_not_worth_a_thread(level, threads, monkeypatch):
    """A job says how many threads it wants: one more for every ``FLOPS_PER_THREAD``."""
    threads(3)
    small, large = Case(1, 5, 2, 2, 2, 2).arguments(), Case(200, 50, 7, 4, 4, 4).arguments()
    assert native._JobOf(small).struct.threads == 1
    assert native._JobOf(large).struct.threads == 3
    threads(1)
    assert native._JobOf(large).struct.threads == 1


def test_images_do_not_depend_on_their_neighbours(level):
    """An image alone, at the end of a vector or in the middle of one has the same sums and gradient, bit by bit."""
    case = Case(37, 33, 7, 4, 4, 4, "pose")
    arguments, slopes = case.arguments(), case.slopes()
    whole = by("c", arguments, slopes)
    for image in (0, 15, 16, 36):
        one = slice(image, image + 1)
        alone = by("c", arguments._replace(u=arguments.u[one]), [slope[one] for slope in slopes])
        for name in ("S", "Z", "d u"):
            assert torch.equal(alone[name], whole[name][one]), name


# --- hard values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("scale", [0.0, 1e-15, 1e-12, 1e15])
def test_votes_of_no_length_and_of_any_length(scale, weighed, level):
    """Too short a vote is divided by a constant; from 1e15, its square is still far from the end of float32."""
    case = Case(20, 33, 7, 4, 4, 4, weighed=weighed)
    arguments, slopes = case.arguments(), case.slopes()
    arguments = arguments._replace(u=scale * arguments.u)
    found = by("c", arguments, slopes)
    require_as_exact_as_the_tiles(found, by("tiles", arguments, slopes), in_full(arguments, slopes))
    assert all(part.isfinite().all() for part in found.values())


def test_short_votes_beside_long_ones(level):
    """All lengths in one vector of images: the mask of what is absent is one of single images."""
    case = Case(40, 33, 7, 4, 4, 4)
    arguments, slopes = case.arguments(), case.slopes()
    lengths = torch.tensor([1.0, 0.0, 1e-14, 3e-13, 1e3]).repeat(8)[:, None, None]
    arguments = arguments._replace(u=lengths * arguments.u)
    found, tiles, truth = by("c", arguments, slopes), by("tiles", arguments, slopes), in_full(arguments, slopes)
    for part in (found, tiles, truth.values):
        part["d u"] = part["d u"] * lengths  # that of a short vote is large
    truth.sizes["d u"] = truth.values["d u"].abs().max().item()
    require_as_exact_as_the_tiles(found, tiles, truth)


@pytest.mark.parametrize("norm", ["pose", "vote", None])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("sizes", SIZES)
def test_one_child_agrees_with_nobody_exactly(sizes, normalize, norm, level):
    """S² − Z of one child is zero whatever its vote, and so is its gradient; FM divides by how small it is."""
    batch, _, *others = SIZES[sizes]
    arguments = Case(batch, 1, *others, norm, normalize).arguments()
    with choice.only("c"):
        total, squares = choice.sums_of(arguments)
        assert torch.equal(total.square(), squares)
        upstream = torch.randn(total.shape)
        gradients = choice.gradients_of(arguments, total * upstream, -upstream / 2)
    for name, part in gradients._asdict().items():
        assert part is None or not part.any(), name


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_seen_in_its_image_and_in_no_other(value, normalize, level):
    case = Case(20, 33, 7, 4, 4, 4, "pose", normalize, weighed=True)
    arguments, slopes = case.arguments(), case.slopes()
    arguments.u[5, 9, 0] = value
    found = by("c", arguments, slopes)
    others = torch.arange(20) != 5
    for name in ("S", "Z", "d u"):
        assert not found[name][5].isfinite().all(), name
        assert found[name][others].isfinite().all(), name
    for name in ("d weight", "d scale"):
        assert not found[name].isfinite().all(), name
    assert found["d weight"][torch.arange(33) != 9].isfinite().all()


def test_votes_whose_squares_are_too_large_for_float32_count_as_they_do_in_the_tiles(level):
    case = Case(20, 33, 7, 4, 4, 4)
    arguments, slopes = case.arguments(), case.slopes()
    arguments.u[5] *= 1e20
    found, tiles = by("c", arguments, slopes), by("tiles", arguments, slopes)
    for name, value in tiles.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-4, equal_nan=True)
    assert not found["S"][5].any()


def test_logits_far_apart_neither_overflow_nor_become_nan(level):
    """A child that belongs to one parent alone, by a thousand of e."""
    case = Case(20, 33, 7, 4, 4, 4, normalize=False)
    arguments, (agreed, slope) = case.arguments(), case.slopes()
    agreed = 1e3 * agreed
    plain, truth = (coupled_in_full(arguments, agreed, slope, dtype) for dtype in (torch.float32, torch.float64))
    require_as_exact_as_the_tiles(coupled(arguments, agreed, slope), plain.values, truth, slack=1e-4)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_coupled_sums_show_what_is_not_finite_in_its_image_and_in_no_other(value, level):
    case = Case(20, 33, 7, 4, 4, 4, "pose", normalize=False)
    arguments, slopes = case.arguments(), case.slopes()
    arguments.u[5, 9, 0] = value
    found = coupled(arguments, *slopes)
    others = torch.arange(20) != 5
    for name in ("sums", "d u", "d agreed"):
        assert not found[name][5].isfinite().all(), name
        assert found[name][others].isfinite().all(), name


# --- tensors of every kind ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["all", "children"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype, which, level):
    case = Case(9, 33, 7, 4, 4, 4, "pose", soft=True, weighed=True)
    arguments, slopes = case.arguments(), case.slopes()
    tensors = [part.to(dtype) if which == "all" else part for part in arguments.tensors]
    tensors[0] = tensors[0].to(dtype)
    arguments = arguments.with_tensors(tensors)
    found, tiles = by("c", arguments, slopes), by("tiles", arguments, slopes)
    for name, value in tiles.items():
        assert found[name].dtype == value.dtype, name
        unit = torch.finfo(value.dtype).eps
        torch.testing.assert_close(found[name], value, rtol=2 * unit, atol=8 * unit * value.abs().max().item())
    assert found["S"].dtype == torch.float32
    assert found["d u"].dtype == dtype


def test_any_order_of_memory_gives_the_same_bits(level):
    case = Case(9, 33, 7, 4, 4, 4, "vote", weighed=True)
    arguments, slopes = case.arguments(), case.slopes()
    expected = by("c", arguments, slopes)

    def turned(tensor):
        return tensor.transpose(0, 1).contiguous().transpose(0, 1)

    def with_gaps(tensor):
        return torch.stack([tensor, tensor], -1)[..., 0]

    for change in (turned, with_gaps):
        changed = arguments.with_tensors([part if part is None else change(part) for part in arguments.tensors])
        found = by("c", changed, [change(slope) for slope in slopes])
        for name, value in expected.items():
            assert torch.equal(found[name], value), name


def test_gradients_that_are_one_number_for_all(level):
    """The gradient of a sum is a tensor of one element, seen everywhere."""
    case = Case(9, 33, 7, 4, 4, 4)
    arguments = case.arguments()
    shape = case.slopes()[0].shape
    found, expected = (by("c", arguments, [slope] * 2) for slope in (torch.ones(()).expand(shape), torch.ones(shape)))
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def test_tensors_that_need_gradients(level):
    """The kernel reads their values; nothing is recorded."""
    case = Case(9, 33, 7, 4, 4, 4)
    arguments = case.arguments()
    arguments.u.requires_grad_()
    assert not any(part.requires_grad for part in by("c", arguments, case.slopes()).values())


@pytest.fixture
def filled_with_nan():
    """New tensors that nobody has written to are NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("filled_with_nan")
@pytest.mark.parametrize("norm", ["pose", "vote", None])
@pytest.mark.parametrize("sizes", [(0, 5, 3), (2, 0, 3), (2, 5, 0), (0, 0, 0)])
def test_of_nothing_the_sums_and_gradients_are_zero(sizes, norm, level):
    case = Case(*sizes, 2, 2, 2, norm, soft=True, weighed=True)
    found = by("c", case.arguments(), case.slopes())
    for name, value in coupled(case.arguments(), *case.slopes()).items():
        assert not value.any(), f"coupled {name}"
    for name, value in found.items():
        assert not value.any(), name
        assert value.shape == in_full(case.arguments(), case.slopes()).values[name].shape


@pytest.mark.usefixtures("filled_with_nan")
def test_every_value_of_the_results_is_written(level):
    for sizes in SIZES.values():
        case = Case(*sizes, "vote", weighed=True)
        found = by("c", case.arguments(), case.slopes())
        found |= {f"coupled {n}": value for n, value in coupled(case.arguments(), *case.slopes()).items()}
        for name, value in found.items():
            assert not value.isnan().any(), name


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a.with_tensors([part.double() for part in a.tensors]), "it computes in float32, not in float64"),
        (lambda a: a._replace(child_weight=a.child_weight.double()), "it computes in float32, not in float64"),
        (lambda a: a._replace(u=a.u.to("meta")), None),  # there the sizes of processors are computed
        (lambda a: a, None),
    ],
)
def test_what_the_kernel_cannot_take_is_said(change, words):
    arguments = change(Case(2, 5, 3, 2, 2, 2, "pose", soft=True, weighed=True).arguments())
    assert native.native_refusal(arguments) == words
    assert choice.path_of(arguments) == ("tiles" if words else "c")


def test_float64_is_exact_beside_the_kernel():
    """gradcheck needs float64, which goes over the tiles."""
    layer = CapsuleLayer(9, 3, 4, streaming=True, routing_options={"softness": 0.5}).double()
    u = torch.randn(3, 9, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda u: tuple(layer(u)), u)


# --- memory ---------------------------------------------------------------------------------------------------------

LITTLE_MEMORY = """
import resource, torch
from votes.kernels.cases import Case, coupled
from paircaps.votes.kernels import choice, native
torch.set_num_threads(1)
small, large = Case(2, 3, 2, 1, 1, 2), Case(1, 2, 8, 1, 1, {columns})
native.library_problem()
arguments, slopes = large.arguments(), large.slopes()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (12 << 20),) * 2)
passes = [choice.sums_of, lambda a: choice.gradients_of(a, *slopes), lambda a: coupled(a, *slopes)]
for compute in passes:
    try:
        compute(arguments)
        print("done")
    except MemoryError as error:
        print(error)
"""


@pytest.mark.usefixtures("kernel")
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is capped by Linux's means")
def test_too_little_memory_is_said():
    """Votes of 65,536 dimensions need more than is left; those of a few do not."""
    for columns, said in ((1 << 16, "the kernel of FM agreement could not allocate its memory"), (4, "done")):
        words = [sys.executable, "-c", LITTLE_MEMORY.format(columns=columns)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [said] * 3


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is seen by Linux's means")
def test_all_memory_is_given_back(level):
    case = Case(64, 8, 8, 4, 4, 4, "pose", soft=True)
    arguments, slopes = case.arguments(), case.slopes()

    def pages():
        return int(Path("/proc/self/statm").read_text().split()[1])

    def many_times():
        for _ in range(100):
            by("c", arguments, slopes)
            coupled(arguments, *slopes)
        return pages()

    before = many_times()
    assert many_times() - before < 1000  # each pass needs a hundred kilobytes or more
