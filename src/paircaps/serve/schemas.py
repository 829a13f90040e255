"""What is answered, as JSON: the shapes that programs can rely on."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field


class ModelFacts(BaseModel):
    """A network that can be asked."""

    name: str = Field(description="to ask for it by")
    model: str = Field(description="its architecture, one of paircaps.list_models()")
    routing: str | None = Field(description="how its capsules agree; null where it has none")
    classes: list[str]
    width: int = Field(description="of its images, in pixels; pictures of other sizes are fitted")
    height: int
    channels: int = Field(description="1 for grey, 3 for colour")
    labels_per_image: int = Field(description="classes that an image shows")
    parameters: int
    pose_dim: int = Field(description="numbers in a pose")
    pose_low: list[list[float]] = Field(description="where each number of a class's pose begins, a row a class")
    pose_high: list[list[float]] = Field(description="and where it ends")
    pose_range_of: str = Field(description="the images that these were seen on")
    draws: bool = Field(description="whether it has a decoder, and so redraws what it sees")
    agrees: bool = Field(description="whether it has capsules, and so an agreement that can be shown")


class Models(BaseModel):
    """All networks that can be asked."""

    models: list[ModelFacts]


class AgreementMap(BaseModel):
    """Where in the picture the activation of a class comes from."""

    shares: list[list[float]] = Field(description="of each position, rows from the top; they add up to the activation")
    rows: list[float] = Field(description="middle of each row, in pixels of the network's image")
    columns: list[float] = Field(description="middle of each column")


class Opinion(BaseModel):
    """What another network says of the same picture."""

    model: str
    classes: list[str]
    certainty: float = Field(description="of the first of them")


class PredictionResponse(BaseModel):
    """What a network says of a picture."""

    model: str
    classes: list[str] = Field(description="the most active class, or several where it was trained on several an image")
    activations: dict[str, float] = Field(description="of the capsule of every class")
    certainty: dict[str, float] = Field(
        description="the same between 0 and 1: activations trained for a margin as they are, others by a softmax"
    )
    looked_at: str = Field(description="the class that what follows is about")
    pose: list[float] = Field(description="of its capsule")
    seen: str = Field(description="what the network sees of the picture: a PNG file, as a data address")
    reconstruction: str | None = Field(
        description="the picture redrawn from that pose, likewise; null without a decoder"
    )
    agreement: AgreementMap | None = Field(description="null without capsules")
    others: list[Opinion] = Field(description="what all other networks say, if it was asked for")


class PoseToDraw(BaseModel):
    """A pose to be drawn."""

    model: str = Field(description="name of a network with a decoder")
    label: str = Field(alias="class", description="whose capsule has the pose")
    pose: list[Annotated[float, Field(strict=True, allow_inf_nan=False)]] = Field(
        description="as many numbers as its pose_dim says, none beyond a million", max_length=16_384
    )


class Drawing(BaseModel):
    """A pose, drawn."""

    picture: str = Field(description="a PNG file, as a data address")


class Problem(BaseModel):
    """Why there is no answer."""

    detail: str
