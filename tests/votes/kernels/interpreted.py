"""The kernels in Triton's interpreter, which is chosen before Triton is imported: run in a process of its own.

It prints, for every case, the errors of the kernels and of the tiles against float64, relative to the largest value.
"""

import itertools
import json

import torch

from paircaps.votes.kernels import triton_sums
from paircaps.votes.tiled_sums import SumArguments, SumGradients, tiled_gradients, tiled_sums

ROWS = {"matrix": (4, 4, 4), "vector": (1, 8, 16), "nine": (3, 3, 3), "twelve": (1, 5, 12), "large": (1, 18, 16)}
"""P, Q and R of transforms; a child of the last is more than one chunk."""


def job(sizes, children=4, parents=2, batch=5, norm=None, soft=False, weighted=False, unscaled=0, dtype=None, **rest):
    rows, inner, columns = ROWS[sizes]
    generator = torch.Generator().manual_seed(1)
    shape = {None: None, "pose": (rows * columns,), "vote": (children, parents, rows * columns)}[norm]

    def normal(*size):
        return torch.randn(size, generator=generator).to(dtype)

    scale, shift = (None if shape is None else 1 + 0.3 * normal(*shape) for _ in range(2))
    return SumArguments(
        1 + normal(batch, children, rows * inner),
        normal(children, parents, inner, columns),
        scale,
        shift,
        rows,
        rest.pop("normalize", True),
        softness=torch.tensor([0.3]) if soft else None,
        child_weight=normal(batch, children).sigmoid() if weighted else None,
        unscaled=unscaled,
        **rest,
    )


def cases():
    """Name, arguments and number of programs of every case; few programs have several blocks of images each."""
    for sizes, norm in itertools.product(["matrix", "vector"], [None, "pose", "vote"]):
        yield f"{sizes}, {norm}", job(sizes, norm=norm), 2048
        yield f"{sizes}, {norm}, everything", job(sizes, norm=norm, soft=True, weighted=True, batch=40), 1
    for sizes in ("nine", "twelve", "large"):
        yield f"{sizes}, everything", job(sizes, norm="vote", soft=True, weighted=True, batch=40), 1
    for sizes in ("matrix", "vector"):
        yield f"{sizes}, not normalised", job(sizes, normalize=False), 2048
        yield f"{sizes}, weighted, not normalised", job(sizes, normalize=False, weighted=True), 2048
        yield f"{sizes}, bfloat16", job(sizes, norm="pose", dtype=torch.bfloat16), 2048
    yield "97 children of one image", job("matrix", children=97, parents=1, batch=1, norm="pose"), 2048
    yield "7 parents", job("vector", parents=7, norm="pose"), 2048
    yield "129 images", job("vector", children=2, batch=129, norm="vote"), 2048
    yield "coordinates, everything", job("large", norm="vote", unscaled=2, soft=True, weighted=True, batch=40), 1
    yield "coordinates", job("matrix", norm="pose", unscaled=1), 2048
    absent = job("vector")
    absent.u[:, :2] *= 1e-14  # votes shorter than ABSENT, and not zero
    yield "absent children", absent, 2048


def everything_of(arguments, sums, gradients):
    """Sums and gradients by name, with slopes that are the same for every path."""
    found = sums(arguments)
    generator = torch.Generator().manual_seed(2)
    slopes = (torch.randn(part.shape, generator=generator).to(part.dtype) for part in found)
    names = ["S", "Z", *SumGradients._fields]
    parts = [*found, *gradients(arguments, *slopes)]
    return {name: part for name, part in zip(names, parts, strict=True) if part is not None}


def errors(arguments):
    """Shape, precision and both errors of everything, by name."""
    double = arguments.with_tensors([None if part is None else part.double() for part in arguments.tensors])
    truth = everything_of(double, tiled_sums, tiled_gradients)
    tiles = everything_of(arguments, tiled_sums, tiled_gradients)
    found = everything_of(arguments, triton_sums.triton_sums, triton_sums.triton_gradients)
    assert found.keys() == tiles.keys() == truth.keys()
    result = {}
    for name, value in truth.items():
        assert found[name].shape == tiles[name].shape, name
        assert found[name].dtype == tiles[name].dtype, name
        largest = float(value.abs().max())
        result[name] = [float((part[name] - value).abs().max()) / largest for part in (found, tiles)]
    return result


def main():
    found = {}
    for name, arguments, programs in cases():
        assert triton_sums.triton_refusal(arguments) is None, name
        triton_sums.PROGRAMS = programs
        found[name] = errors(arguments)
    one = job("vector", children=1)
    total, squares = triton_sums.triton_sums(one)
    # one child agrees with nothing: s = (S² − Z) / 2 is zero, and so is its gradient
    gradients = triton_sums.triton_gradients(one, total, torch.full_like(total, -0.5))
    found["one child"] = [float((total.square() - squares).abs().max()), float(gradients.weight.abs().max())]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
