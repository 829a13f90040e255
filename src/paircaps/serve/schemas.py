"""JSON schemas of requests and responses."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, JsonValue

LARGEST_POSE_VALUE = 1e6
"""Largest absolute value in a pose that is drawn."""

_POSE_VALUES: dict[str, JsonValue] = {"minimum": -LARGEST_POSE_VALUE, "maximum": LARGEST_POSE_VALUE}


class Slider(BaseModel):
    """A dimension of the pose of a class, which a slider moves."""

    dimension: int = Field(description="its place in the pose, from 0")
    change: float = Field(
        description="mean absolute change of a pixel of the reconstruction, 0 to 1, while it moves through its range"
    )
    follows: str | None = Field(
        description="warp of the image that it clearly follows: x, y, rotation, scale or shear; null if none"
    )
    r2: float | None = Field(
        description="R² of a linear read-out of that warp from this dimension alone; null if it follows none"
    )


class ModelFacts(BaseModel):
    """Description of a network."""

    name: str = Field(description="name of the network, used in requests")
    model: str = Field(description="architecture, one of paircaps.list_models()")
    routing: str | None = Field(description="routing of its capsules; null for a network without capsules")
    classes: list[str] = Field(description="names of its classes")
    width: int = Field(description="width of its images in pixels; pictures of other sizes are fitted")
    height: int = Field(description="height of its images in pixels")
    channels: int = Field(description="channels of its images: 1 for grey, 3 for colour")
    fit: str = Field(description="how pictures of another aspect ratio are fitted: crop, pad or stretch")
    invert: str = Field(description="whether dark and light are exchanged: never, always, or of light pictures: light")
    background: int = Field(description="grey level behind transparent pixels, 0 to 255")
    certainty: str = Field(description="how certainties come from activations: activation, as they are, or softmax")
    trained_on: str | None = Field(description="name of the dataset that it was trained on; null if not known")
    digits: Literal["handwritten", "printed"] | None = Field(
        description="digits that it was trained on: handwritten (MNIST) or printed (glyphs); null for neither"
    )
    labels_per_image: int = Field(description="number of classes that an image shows")
    parameters: int = Field(description="number of trainable parameters")
    pose_dim: int = Field(description="number of dimensions of a pose")
    pose_low: list[list[float]] = Field(description="lower end of the range of each pose dimension, one row per class")
    pose_high: list[list[float]] = Field(description="upper end of the range of each pose dimension, one row per class")
    pose_range_of: str = Field(description="name of the images that these ranges were measured on")
    sliders: list[list[Slider]] | None = Field(
        description="for each class the dimensions of its pose in falling order of their change, at most 16; "
        "null without a decoder, and in the first seconds after the start, until they are measured"
    )
    draws: bool = Field(description="true if it has a decoder, which reconstructs pictures")
    agrees: bool = Field(description="true if it has capsules, whose agreement can be shown")
    segments: bool = Field(description="true if it says which pixel belongs to which class")


class Models(BaseModel):
    """List of all networks."""

    models: list[ModelFacts]
    largest: int = Field(description="most bytes of a picture's file")


class AgreementMap(BaseModel):
    """Shares of the positions of a picture in the activation of a class."""

    shares: list[list[float]] = Field(
        description="share of each position, rows from the top; their sum is the activation"
    )
    rows: list[float] = Field(description="centre of each row, in pixels of the network's image")
    columns: list[float] = Field(description="centre of each column, in pixels of the network's image")


class MaskOverlay(BaseModel):
    """Which pixel of a picture belongs to which class."""

    classes: list[str] = Field(description="classes whose masks are shown, those that the network predicts")
    colours: list[str] = Field(description="colour of each of them, such as #ff9628; where two overlap it is their sum")
    picture: str = Field(
        description="masks in these colours, transparent elsewhere, in the size of the network's image: "
        "a PNG file as a data: URL"
    )


class Opinion(BaseModel):
    """Prediction of another network for the same picture."""

    model: str = Field(description="name of the network")
    classes: list[str] = Field(description="the most active class, or several for networks trained on several")
    certainty: float = Field(description="certainty of the first of these classes, between 0 and 1")


class PredictionResponse(BaseModel):
    """Prediction of a network for a picture."""

    model: str = Field(description="name of the network")
    classes: list[str] = Field(description="the most active class, or several for networks trained on several")
    activations: dict[str, float] = Field(
        description="activation of the capsule of every class; the score of every class of a pooling network"
    )
    certainty: dict[str, float] = Field(
        description="activations between 0 and 1: unchanged if trained with a margin loss, else after a softmax"
    )
    looked_at: str = Field(description="class that the following fields are about")
    pose: list[float] = Field(description="pose of the capsule of that class; the features of a pooling network")
    seen: str = Field(description="picture as the network sees it: a PNG file as a data: URL")
    inverted: bool = Field(description="true if dark and light of the picture were exchanged")
    reconstruction: str | None = Field(
        description="reconstruction from that pose: a PNG file as a data: URL; null without a decoder"
    )
    agreement: AgreementMap | None = Field(description="origin of the activation in the picture; null without capsules")
    masks: MaskOverlay | None = Field(description="which pixel belongs to which class; null of a network without masks")
    others: list[Opinion] = Field(description="predictions of all other networks, if compare was true")


class PoseToDraw(BaseModel):
    """Pose to be drawn."""

    model: str = Field(description="name of a network with a decoder")
    label: str = Field(alias="class", description="class whose capsule has the pose")
    pose: list[Annotated[float, Field(strict=True, allow_inf_nan=False, json_schema_extra=_POSE_VALUES)]] = Field(
        description="pose_dim numbers from -1e6 to 1e6", max_length=16_384
    )


class Drawing(BaseModel):
    """Drawing of a pose."""

    picture: str = Field(description="PNG file as a data: URL")


class Problem(BaseModel):
    """Error message."""

    detail: str = Field(description="what was wrong, in a sentence")
