"""Equivariance of several networks side by side, as a table."""

from __future__ import annotations

from typing import Any

from paircaps.data.synthetic.poses import POSE
from paircaps.explain.equivariance import REDUCED
from paircaps.explain.warps import RANGES, SHIFT


def as_markdown(result: dict[str, Any]) -> str:
    """The table, what its columns are, and what it was measured on."""
    lines = [
        f"| network | pose | {' | '.join(f'R² {kind}' for kind in POSE)} | spread | upright | warped |",
        "|---|---|" + "---|" * (len(POSE) + 3),
    ]
    for row in result["networks"]:
        spread = "–" if row["spread"] is None else f"{row['spread']:.2f}"
        ends = f"{spread} | {100 * row['upright']:.1f} % | {100 * row['warped']:.1f} %"
        lines.append(f"| {row['name']} | {row['pose_dim']} | {_values(row['r2'])} | {ends} |")
        if row["r2_reduced"] is not None:
            lines.append(f"| the same, reduced | {REDUCED} | {_values(row['r2_reduced'])} | | | |")
    lines += ["", _explained(result)]
    return "\n".join(lines) + "\n"


def _values(r2: dict[str, float]) -> str:
    return " | ".join(f"{r2[kind]:.2f}" for kind in POSE)


def _explained(result: dict[str, Any]) -> str:
    data, most, still = result["data"], RANGES, result["networks"][0]["still"]
    return " ".join(
        [
            "*R²* of a linear read-out of the true pose from that of the right capsule, one a class, fitted on",
            f"{result['images']:,} warped images of {data['name']} ({data['fit']}) and tested on as many others",
            f"({data['test']}); 1 is perfect, 0 no better than the mean. *pose*: the numbers it is read from;",
            f"where they are more than {REDUCED}, their {REDUCED} principal components too. *spread*: deviation of the",
            "right capsule's activation while its image is warped, as a part of the distance between right and wrong",
            f"ones. *upright*: accuracy on {still} images as they are, *warped*: on those warped for the test. Warps:",
            f"{most.rotation:g} degrees, a scale of {most.scale[0]:g}",
            f"to {most.scale[1]:g}, a shear of {most.shear:g}, a shift of {SHIFT:g} of the side, each to either side.",
            f"Seed {result['seed']}. {result['machine']}.",
        ]
    )
