"""Models from images to capsules: those of the paper, their pooling baselines, and the decoders."""

from __future__ import annotations

from paircaps.models.base import ImageModel, count_parameters
from paircaps.models.caps_segment import CapsSegment
from paircaps.models.capsnet import CapsNet
from paircaps.models.capsnet_pool import CapsNetPool
from paircaps.models.capsule_model import CapsuleModel
from paircaps.models.decoder import Decoder, DeconvDecoder, DeepCapsDecoder, DenseDecoder, PoseDecoder, select_pose
from paircaps.models.deepcaps import DeepCaps
from paircaps.models.deepcaps_pool import DeepCapsPool
from paircaps.models.efficient_capsnet import EfficientBackbone, EfficientCapsNet
from paircaps.models.efficient_capsnet_pool import EfficientCapsNetPool
from paircaps.models.em_capsnet import EMCapsNet
from paircaps.models.em_capsnet_pool import EMCapsNetPool
from paircaps.models.fast import FastBackbone, WhiteningStem
from paircaps.models.fast_caps import FastCapsules
from paircaps.models.fast_pool import FastPool
from paircaps.models.hitnet import HitNet, HitOrMiss
from paircaps.models.pooling import PoolingModel
from paircaps.models.registry import (
    create_model,
    is_model,
    is_pooling_twin,
    list_models,
    pooling_twin,
    published_routing,
    register_model,
)
from paircaps.models.resnet import ResNetBackbone
from paircaps.models.resnet_caps import ResNetCapsules
from paircaps.models.resnet_caps_grid import ResNetGridCapsules
from paircaps.models.resnet_pool import ResNetPool
from paircaps.models.segment import MaskModel, Segmentation
from paircaps.models.unet_twin import UNetTwin

__all__ = [
    "CapsNet",
    "CapsNetPool",
    "CapsSegment",
    "CapsuleModel",
    "Decoder",
    "DeconvDecoder",
    "DeepCaps",
    "DeepCapsDecoder",
    "DeepCapsPool",
    "DenseDecoder",
    "EMCapsNet",
    "EMCapsNetPool",
    "EfficientBackbone",
    "EfficientCapsNet",
    "EfficientCapsNetPool",
    "FastBackbone",
    "FastCapsules",
    "FastPool",
    "HitNet",
    "HitOrMiss",
    "ImageModel",
    "MaskModel",
    "PoolingModel",
    "PoseDecoder",
    "ResNetBackbone",
    "ResNetCapsules",
    "ResNetGridCapsules",
    "ResNetPool",
    "Segmentation",
    "UNetTwin",
    "WhiteningStem",
    "count_parameters",
    "create_model",
    "is_model",
    "is_pooling_twin",
    "list_models",
    "pooling_twin",
    "published_routing",
    "register_model",
    "select_pose",
]
