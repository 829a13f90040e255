"""Layers: primary capsules, the capsule layer and two convolutional ones, and batch norm of capsules and votes."""

from __future__ import annotations

from paircaps.layers.capsule_layer import CapsuleLayer
from paircaps.layers.conv_capsule_layer import ConvCapsuleLayer
from paircaps.layers.map_capsule_layer import MapCapsuleLayer
from paircaps.layers.norms import CapsuleNorm, set_norm_momentum, settle
from paircaps.layers.primary import PrimaryCapsules

__all__ = [
    "CapsuleLayer",
    "CapsuleNorm",
    "ConvCapsuleLayer",
    "MapCapsuleLayer",
    "PrimaryCapsules",
    "set_norm_momentum",
    "settle",
]
