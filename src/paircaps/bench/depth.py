"""How many capsule layers can be stacked before a routing stops learning?

    python benchmarks/depth.py --mnist DIR --out results/bench/depth.md

Trains resnet-caps-small (1,1,1 blocks) with one to six capsule layers for 90 steps of 64 digits, and prints a
Markdown table: the mean loss of the last ten steps, and the accuracy on unseen digits after batch norm has settled.
The better of two learning rates is the one whose loss is lower. DIR holds MNIST's four idx files, gzipped, of which
the first 10,000 digits are trained on and the first 1,000 test digits tested; without it, the seven-segment digits of
segments.py beside this file are used.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
import paircaps
from paircaps._utils.machine import machine_line
from paircaps.bench.segments import accuracy, segment_digits, settle, train
from paircaps.cli.arguments import whole_number
from paircaps.data import load_dataset
from paircaps.votes import MatrixVotes

# cross entropy on an activation below one cannot fall under 1.46, so dynamic and EM get the loss made for them
CASES = [("fm", "cross entropy"), ("fm", "margin"), ("dynamic", "margin"), ("em", "margin")]
LEARNING_RATES = (1e-3, 3e-3)

Digits = tuple[Tensor, Tensor]


def mnist(folder: Path, split: str, count: int) -> Digits:
    """The first digits of a split, (N, 1, 28, 28) in 0..1, and their classes."""
    digits = load_dataset("mnist", split, folder, download=False)
    return digits.images[:count].float() / 255, digits.labels[:count]


def learn(
    routing: str, loss: str, depth: int, lr: float, seed: int, digits: Digits, unseen: Digits, args: argparse.Namespace
) -> tuple[float, float]:
    """Loss of the last ten steps, and accuracy on unseen digits."""
    torch.manual_seed(seed)
    hidden = (args.hidden,) * (depth - 1)
    options = {"beta_u": args.beta_u} if routing == "em" and args.beta_u is not None else None
    model = paircaps.create_model("resnet-caps-small", routing=routing, hidden_capsules=hidden, routing_options=options)
    if args.pair_start:
        start_from_pairs(model)
    losses = train(model, *digits, steps=args.steps, loss=loss, lr=lr, batch=64, seed=seed)
    settle(model, digits[0][:2000])
    last = losses[-10:]
    return sum(last) / len(last), accuracy(model, *unseen)


def start_from_pairs(model: torch.nn.Module) -> None:
    """Draw vote weights anew, each pair's matrix by Glorot's rule for itself: far larger than the library's start."""
    for module in model.modules():
        if isinstance(module, MatrixVotes):
            fan_in, fan_out = module.weight.shape[-2:]
            torch.nn.init.normal_(module.weight, std=(2 / (fan_in + fan_out)) ** 0.5)


def table(args: argparse.Namespace) -> str:
    """Every case at every depth: the better learning rate, the mean and the range over seeds."""
    if args.mnist:
        digits, unseen = mnist(args.mnist, "train", 10_000), mnist(args.mnist, "test", 1000)
    else:
        generator = torch.Generator().manual_seed(0)
        digits, unseen = segment_digits(10_000, generator), segment_digits(1000, generator)
    rows = [
        "| routing | loss | layers | loss of the last ten steps | accuracy, % | learning rate |",
        "|---|---|---|---|---|---|",
    ]
    cases = [(*case, depth) for case in CASES if case[0] in args.routings for depth in args.depths]
    for routing, loss, depth in cases:
        runs = {
            lr: [learn(routing, loss, depth, lr, seed, digits, unseen, args) for seed in range(args.seeds)]
            for lr in LEARNING_RATES
        }
        best = min(runs, key=lambda lr: sum(final for final, _ in runs[lr]))
        finals, rights = zip(*runs[best], strict=True)
        percent = [100 * right for right in rights]
        rows.append(
            f"| {routing} | {loss} | {depth} | {np.mean(finals):.3f} ({min(finals):.3f}–{max(finals):.3f}) "
            f"| {np.mean(percent):.1f} ({min(percent):.1f}–{max(percent):.1f}) | {best:g} |"
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return "\n".join(rows)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", type=Path, metavar="DIR", help="folder of MNIST's idx files")
    parser.add_argument("--steps", type=whole_number(1), default=90, help="of Adam, 90 unless told")
    parser.add_argument("--seeds", type=whole_number(1), default=3, help="seeds 0 to N − 1")
    parser.add_argument("--hidden", type=whole_number(1), default=32, help="capsules of each layer but the last")
    parser.add_argument(
        "--routings",
        nargs="+",
        default=paircaps.list_routings(),
        choices=paircaps.list_routings(),
        help="all unless told",
    )
    parser.add_argument(
        "--depths", nargs="+", type=whole_number(1), default=[1, 2, 3, 6], help="numbers of capsule layers"
    )
    parser.add_argument("--pair-start", action="store_true", help="start each pair's vote matrix by its own fans")
    parser.add_argument("--beta-u", type=float, help="start of EM's β_u, in place of the library's")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the table here as well")
    args = parser.parse_args()
    if args.mnist and not (args.mnist / "train-images-idx3-ubyte.gz").is_file():
        parser.error(f"no train-images-idx3-ubyte.gz in {args.mnist}")
    if args.beta_u is not None and not math.isfinite(args.beta_u):
        parser.error(f"--beta-u must be finite, got {args.beta_u}")
    if args.out:
        try:  # before the run, not after it
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.open("a").close()
        except OSError as error:
            parser.error(f"cannot write {args.out}: {error.strerror}")
    where = machine_line()  # before the run, in which the checkout may change
    data = "MNIST digits" if args.mnist else "seven-segment digits"
    text = (
        f"{args.steps} steps of 64 {data}, {args.hidden} capsules in each hidden layer, mean (range) over "
        f"{args.seeds} seeds, Adam at the better of {' and '.join(f'{lr:g}' for lr in LEARNING_RATES)}.\n\n"
        f"{table(args)}\n\n{where}\n"
    )
    print(text)
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
