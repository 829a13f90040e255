"""Capsules as the head of a network of your own, trained by a loop of your own, on digits that are drawn meanwhile.

    python examples/capsule_head.py --steps 200

Prints the loss as it falls and the accuracy on digits of fonts that no training has seen. It needs no file and takes
some seconds. ``pip install 'paircaps[train]'`` brings what draws the digits.
"""

import argparse

import torch
from torch import Tensor, nn

from paircaps import CapsuleLayer, Capsules, PrimaryCapsules, settle
from paircaps.data import load_dataset


class DigitNet(nn.Module):
    """Two convolutions, and capsules above them: images (B, 1, 28, 28) in 0..1 to ten capsules each."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        )
        self.primary = PrimaryCapsules(in_channels=32, in_size=7, groups=4, pose_dim=16)
        self.digits = CapsuleLayer(self.primary.out_grid, 10)

    def forward(self, images: Tensor) -> Capsules:
        """Images to the capsules of the digits."""
        return self.digits(self.primary(self.body(images)))


def main(steps: int) -> None:
    """Train a network for some steps, and test it."""
    torch.manual_seed(0)
    train, test = load_dataset("glyphs", "train", length=1000), load_dataset("glyphs", "test", length=500)
    images = train.images / 255
    network = DigitNet()
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        chosen = torch.randint(len(images), (64,))
        loss = nn.functional.cross_entropy(network(images[chosen]).activation, train.labels[chosen])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 50 == 0 or step == steps:
            print(f"step {step}: loss {loss.item():.2f}")
    settle(network, images.split(64))  # batch norms lag behind the weights after a short training
    with torch.no_grad():
        right = network.eval()(test.images / 255).activation.argmax(-1) == test.labels
    print(f"accuracy {right.float().mean().item():.1%}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a network with a capsule layer on drawn digits.")
    parser.add_argument("--steps", type=int, default=200, help="steps of training (default: 200)")
    steps = parser.parse_args().steps
    main(steps) if steps > 0 else parser.error(f"--steps must be 1 or more, got {steps}")
