"""What ``make demo`` runs: three routings and a pooling network of the same size on a small task, and a look at poses.

No data is needed and nothing is written; it takes about a minute on two cores.
"""

from __future__ import annotations

import io
import sys
import time

import torch
from segments import LOSSES, NOISE, accuracy, most_active, segment_digits, settle, train
from torch import Tensor

import paircaps
from paircaps.functional import reconstruction_loss

SIZE = 20
STEPS = 150
SHOWN = 4  # pictures side by side, 80 columns in all
RIVALS = {
    "FM agreement": ("resnet-caps-small", "fm", "cross entropy"),
    "dynamic routing (3)": ("resnet-caps-small", "dynamic", "margin"),
    "EM routing (3)": ("resnet-caps-small", "em", "margin"),
    "average pooling": ("resnet-pool-small", "fm", "cross entropy"),
}


def compare(images: Tensor, labels: Tensor, test_images: Tensor, test_labels: Tensor) -> None:
    """Train each rival alike and print a row for it."""
    warm_up = paircaps.create_model("resnet-caps-small", image_size=SIZE)  # the first steps of a process are slow
    train(warm_up, images, labels, steps=5, loss="margin", lr=3e-3, batch=64)
    print(f"\n{STEPS} steps of 64 seven-segment digits, {SIZE}×{SIZE}, tested on {len(test_labels)} others\n")
    print(f"{'':21s}{'parameters':>11s}{'accuracy':>10s}{'ms a step':>11s}")
    for title, (name, routing, loss) in RIVALS.items():
        torch.manual_seed(0)
        model = paircaps.create_model(name, image_size=SIZE, routing=routing)
        start = time.perf_counter()
        train(model, images, labels, steps=STEPS, loss=loss, lr=3e-3, batch=64)
        milliseconds = 1000 * (time.perf_counter() - start) / STEPS
        settle(model, images)
        right = accuracy(model, test_images, test_labels)
        print(f"{title:21s}{paircaps.count_parameters(model):11,d}{right:10.1%}{milliseconds:11.1f}", flush=True)


def redraw(images: Tensor, labels: Tensor, test_images: Tensor) -> None:
    """Train a capsule network with a decoder, and print what it redraws from 16 numbers a digit."""
    print("\ntraining a decoder beside a capsule network ...", flush=True)
    torch.manual_seed(0)
    model = paircaps.create_model("resnet-caps-small", image_size=SIZE)
    decoder = paircaps.DeconvDecoder(model.pose_dim, SIZE)
    optimizer = torch.optim.Adam([*model.parameters(), *decoder.parameters()], 3e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(2 * STEPS):
        chosen = torch.randint(len(images), (64,), generator=generator)
        capsules = model(images[chosen])
        drawn = decoder(capsules, labels[chosen])
        loss = LOSSES["cross entropy"](capsules.activation, labels[chosen])
        loss = loss + 0.05 * reconstruction_loss(drawn, images[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    settle(model, images)
    with torch.no_grad():
        capsules = model(test_images)
        decoder.train()  # its batch norm takes this batch's statistics: 300 steps are too few for running ones
        drawn = decoder(capsules)
    print("\nunseen digits, and below each what the decoder draws from 16 numbers:")
    print("the pose of its most active capsule\n")
    for pictures in (test_images, drawn):
        print(in_blocks(torch.cat(list(pictures[:SHOWN, 0]), dim=1)), end="\n\n")
    print("".join(f"{'read as ' + str(label):^{SIZE}s}" for label in most_active(capsules)[:SHOWN].tolist()))


def in_blocks(picture: Tensor) -> str:
    """A picture in 0..1, (H, W), as text without its noise: two pixels a character, one above the other."""
    shades = " ░▒▓█"
    ink = (picture - NOISE) / (1 - NOISE)
    level = (ink.clamp(0, 1) * (len(shades) - 1)).round().long()
    rows = torch.maximum(level[0::2], level[1::2]).tolist()
    return "\n".join("".join(shades[value] for value in row) for row in rows)


def main() -> None:
    """Run the demo."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without blocks gets question marks, not a traceback
    generator = torch.Generator().manual_seed(0)
    images, labels = segment_digits(2000, generator, SIZE)
    test_images, test_labels = segment_digits(500, generator, SIZE)
    compare(images, labels, test_images, test_labels)
    redraw(images, labels, test_images[:100])


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nstopped")
