"""The C kernel on random sizes and options, beside the plain computation: `python -m reference.kernel_fuzz COUNT`.

Run it in `tests/`. Every kind of instructions that this processor has is tried. With `--sanitize address` (`undefined`,
`thread`) the kernel is compiled with gcc's checks of memory, of undefined behaviour or of threads; for that of memory,
what is new is full of NaN. The first wrong value, or access, ends the process with an error.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

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

from paircaps.votes.kernels import native, native_build

MOST = 300_000
"""Values of all votes of a case: its float64 votes and their gradients take some milliseconds."""

SANITIZERS = {
    "address": (
        ("-O0", "-fsanitize=address"),
        "libasan.so",
        # Python itself leaks; 255 in every byte is NaN
        {"ASAN_OPTIONS": f"detect_leaks=0:malloc_fill_byte=255:max_malloc_fill_size={1 << 30}"},
    ),
    "undefined": (("-O0", "-fsanitize=undefined", "-fno-sanitize-recover=all"), "libubsan.so", {}),
    "thread": (("-O1", "-fsanitize=thread"), "libtsan.so", {"TSAN_OPTIONS": "halt_on_error=1:exitcode=66"}),
}
"""Flags of the compiler, the library that has to be loaded before all others, and settings."""


def draw(dice):
    """A case; half of the shapes are those that the compiler knows the sizes of."""
    known = [(1, 8, 16), (1, 16, 16), (4, 4, 4)]
    while True:
        any_shape = (dice.randint(1, 5), dice.randint(2, 18), dice.randint(1, 18))
        rows, inner, columns = dice.choice([*known, any_shape, any_shape, any_shape])
        batch = dice.choice([dice.randint(1, 20), dice.randint(1, 150)])
        children, parents = dice.choice([dice.randint(1, 9), dice.randint(1, 80)]), dice.randint(1, 40)
        # of very few values, the error of the tiles may by luck be none
        if batch * children * parents * rows * columns <= MOST and rows * columns > 1 and batch * children > 3:
            break
    norm, normalize = dice.choice([None, "pose", "vote"]), dice.random() < 0.6
    soft, weighed = normalize and dice.random() < 0.4, dice.random() < 0.4
    unscaled = dice.choice([0, 0, 1, inner - 1]) if norm else 0
    return Case(
        batch, children, parents, rows, inner, columns, norm, normalize, soft, weighed, unscaled, dice.randrange(10**6)
    )


def require_right(case, levels):
    """Compare all that the kernel computes of a case."""
    arguments, slopes = case.arguments(), case.slopes()
    tiles, truth = by("tiles", arguments, slopes), in_full(arguments, slopes)
    agreed = 0.2 * slopes[0]
    dense, coupled_truth = (
        coupled_in_full(arguments, agreed, slopes[1], part) for part in (torch.float32, torch.double)
    )
    for level in levels:
        native.instructions = lambda level=level: level
        found = by("c", arguments, slopes)
        require_as_exact_as_the_tiles(found, tiles, truth, slack=4e-6)
        of_votes = coupled(arguments, agreed, slopes[1])
        require_as_exact_as_the_tiles(of_votes, dense.values, coupled_truth, slack=4e-6)


def run(count, seed, levels):
    """Try so many cases, on one to three threads."""
    native.FLOPS_PER_THREAD = 1
    torch.set_num_threads(1)
    dice = random.Random(seed)
    for number in range(count):
        case, threads = draw(dice), dice.randint(1, 3)
        torch.get_num_threads = lambda threads=threads: threads  # the kernel's; PyTorch keeps to its own number
        try:
            require_right(case, levels)
        except AssertionError as error:
            raise SystemExit(f"case {number} of seed {seed}, {threads} threads: {case}\n{error}") from None
    print(f"{count} cases, {', '.join(levels)}: as they should be")


def sanitizer(kind):
    """The library of a sanitizer that has to be loaded first, or None if this machine has none."""
    if shutil.which("gcc") is None:
        return None
    found = subprocess.run(
        ["gcc", f"-print-file-name={SANITIZERS[kind][1]}"], capture_output=True, text=True, check=True
    )
    path = Path(found.stdout.strip())
    return path if path.is_absolute() and path.exists() else None


def run_sanitized(kind, count, seed, levels):
    """Build the kernel with a sanitizer, and run the same in a process of its own; its exit code."""
    first, (flags, _, settings) = sanitizer(kind), SANITIZERS[kind]
    if first is None:
        raise SystemExit(f"gcc has no sanitizer of kind {kind!r} here")
    for level in levels:
        lanes, of_level = native_build.INSTRUCTIONS[level]
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder, "votes.so")
            plain = [flag for flag in native_build.FLAGS if not flag.startswith("-O")]
            words = ["gcc", "-g", *plain, *flags, *of_level, f"-DLANES={lanes}", "-o", library]
            subprocess.run([*words, native_build.SOURCE, "-lm"], check=True)
            environment = {**os.environ, **settings, "LD_PRELOAD": str(first)}
            again = [sys.executable, "-m", "reference.kernel_fuzz", str(count), "--seed", str(seed)]
            done = subprocess.run([*again, "--library", library, "--level", level], env=environment, check=False)
        if done.returncode:
            return done.returncode
    return 0


def main():
    parser = argparse.ArgumentParser(prog="python -m reference.kernel_fuzz")
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sanitize", choices=SANITIZERS)
    parser.add_argument("--level", choices=runnable_levels(), help="kind of instructions; all by default")
    parser.add_argument("--library", type=Path, help="a kernel that is compiled already, for that level")
    options = parser.parse_args()
    levels = runnable_levels() if options.level is None else [options.level]
    if options.sanitize:
        sys.exit(run_sanitized(options.sanitize, options.count, options.seed, levels))
    if options.library:
        loaded = native_build._load(options.library)
        native.load_library = lambda level: loaded
    run(options.count, options.seed, levels)


if __name__ == "__main__":
    main()
