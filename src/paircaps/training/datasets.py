"""Images of a recipe: for training, validation and test, and their augmentation; and images for a trained network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from paircaps.data import (
    AffineWarp,
    AlternatingFlip,
    Augmentation,
    Brightness,
    Compose,
    Contrast,
    Cutout,
    Flip,
    ImageDataset,
    RandomCrop,
    Translate,
    load_dataset,
)
from paircaps.data.randomness import permutation
from paircaps.data.registry import FOLDER, folder_path
from paircaps.data.split import content_hash, share_of_each_class
from paircaps.errors import PaircapsError, RecipeError
from paircaps.model_files import plugin_sentence
from paircaps.network import Network
from paircaps.training.recipe import AUTO, Augment, Data, is_folder, options_of
from paircaps.training.run_folder import RunFolder
from paircaps.training.schedule import count_held_back


@dataclass(frozen=True)
class Datasets:
    """Images of a training.

    Args:
        train: images to train on.
        validation: images held back from the training split, to choose the best epoch by; None for none.
        test: images to test on, once, at the end.
    """

    train: ImageDataset
    validation: ImageDataset | None
    test: ImageDataset

    def facts(self) -> dict[str, object]:
        """Description of the images for checkpoints: it must be the same when a run is resumed."""
        held_back = 0 if self.validation is None else len(self.validation)
        return {
            "train": len(self.train),
            "validation": held_back,
            "test": len(self.test),
            "shape": list(self.train.shape),
            "classes": list(self.train.classes),
        }

    @property
    def skipped(self) -> tuple[str, ...]:
        """Damaged pictures that were left out of any split, each with the reason."""
        return tuple(dict.fromkeys((*self.train.info.skipped, *self.test.info.skipped)))

    def to(self, device: torch.device) -> Datasets:
        """The same images on a device, where batches are then made and augmented."""
        if device.type == "cpu":
            return self
        validation = None if self.validation is None else self.validation.to(device)
        return Datasets(self.train.to(device), validation, self.test.to(device))


def load_datasets(settings: Data) -> Datasets:
    """Load all images of a recipe; also those of the test, so that an error shows before the training.

    Args:
        settings: section ``data`` of the recipe.
    """
    options = _with_on_error(settings.name, settings, settings.options)
    whole = open_dataset(settings.name, "train", settings.folder, options).limit(settings.limit, settings.seed)
    name = tested_name(settings)
    test = open_dataset(name, "test", settings.folder, _with_on_error(name, settings, tested_options(settings)))
    _require_alike(whole, test)
    if len(whole.classes) < 2 and not whole.info.made_for_masks:  # a mask of one class tells it from all around it
        alone = ", ".join(map(repr, whole.classes))
        raise RecipeError(f"data.name: {whole!r} has one class alone, {alone}: there is nothing to tell apart")
    train, validation = hold_back(whole, settings.validation, settings.seed, settings.splits_by_class)
    validation = None if validation is None else validation.in_memory()
    return Datasets(train.in_memory(), validation, test.limit(settings.limit, settings.seed))


def _with_on_error(name: str, settings: Data, options: Mapping[str, object]) -> Mapping[str, object]:
    """Options of a dataset with ``data.on_error`` among them, if it is a folder of pictures."""
    return {"on_error": settings.on_error, **options} if is_folder(name) else options


def tested_name(settings: Data) -> str:
    """Name of the dataset to test on."""
    return settings.test or settings.name


def tested_options(settings: Data) -> dict[str, object]:
    """Options of the dataset to test on; they include those of the training if it is the same dataset."""
    same = tested_name(settings) == settings.name
    return {**settings.options, **settings.test_options} if same else settings.test_options


def _require_alike(train: ImageDataset, test: ImageDataset) -> None:
    """Raise an error if the test set differs from the training set in classes, shape or labels per image."""
    for what, one, other in (
        ("classes", ", ".join(train.classes), ", ".join(test.classes)),
        ("images of", "×".join(map(str, train.shape)), "×".join(map(str, test.shape))),
        ("labels an image:", train.labels_per_image, test.labels_per_image),
    ):
        if one != other:
            raise RecipeError(
                f"data.test: {test.info.name} has {what} {other}, {train.info.name} has {what} {one}; "
                "data.test_options can change some of that"
            )


def open_dataset(name: str, split: str, folder: str | Path, options: Mapping[str, object]) -> ImageDataset:
    """Load one split of a dataset as a recipe names it; a wrong name or option is an error of the recipe.

    Args:
        name: name of the dataset, or path of a folder of pictures.
        split: ``"train"`` or ``"test"``.
        folder: data folder to look in first, not used for a folder of pictures; empty for none.
        options: options of the dataset, as TOML has them.
    """
    if name == FOLDER and not folder:
        raise RecipeError("data.name: the path of your folder of pictures is missing, as --data.name ./pictures")
    has_root = bool(folder) and folder_path(name) is None
    root = Path(folder).expanduser() if has_root else None
    try:
        return load_dataset(name, split, root, **options_of(options))
    except (TypeError, ValueError) as error:
        raise RecipeError(f"data: {error}") from None


def hold_back(
    dataset: ImageDataset, share: float, seed: int, by_class: bool = False
) -> tuple[ImageDataset, ImageDataset | None]:
    """Split a dataset at random into images to train on and images for validation.

    Args:
        dataset: images to split.
        share: share of the images for validation.
        seed: seed that decides which ones.
        by_class: whether every class gives its share, and copies of an image stay on one side, as in folders.

    Returns:
        Images to train on, and those for validation, None if there are none.
    """
    if by_class and share:
        return _hold_back_of_each_class(dataset, share, seed)
    count = count_held_back(len(dataset), share)
    if not count:
        return dataset, None
    if count == len(dataset):
        raise RecipeError(f"data.validation: {share} of {len(dataset)} images leaves none to train on")
    order = permutation(seed, 0, len(dataset), "validation")
    return dataset.subset(order[count:].sort().values), dataset.subset(order[:count].sort().values)


def _hold_back_of_each_class(
    dataset: ImageDataset, share: float, seed: int
) -> tuple[ImageDataset, ImageDataset | None]:
    contents = (image for index in dataset.index_chunks() for image in dataset.batch(index).images.cpu().numpy())
    hashes = [content_hash(content.tobytes(), seed, "validation") for content in contents]
    held_back = torch.tensor(share_of_each_class(dataset.labels.tolist(), hashes, share))
    if not held_back.any():
        return dataset, None
    return dataset.subset(~held_back), dataset.subset(held_back)


def augmentation(settings: Augment) -> Augmentation | None:
    """Augmentation of a recipe, its steps in a fixed order; None for no augmentation.

    Geometry comes first, then brightness and contrast, then what must keep its values, such as black patches.

    Args:
        settings: section ``augment`` of the recipe.
    """
    steps: list[Augmentation] = []
    if settings.rotation or settings.shear or settings.scale != (1.0, 1.0):
        steps.append(AffineWarp(settings.rotation, settings.scale, settings.shear))
    if settings.translate:
        steps.append(Translate(settings.translate))
    if settings.crop_padding or settings.crop_size is not None:
        steps.append(RandomCrop(settings.crop_padding, settings.crop_size, settings.crop_border))
    if settings.flip == AUTO:
        raise RecipeError("augment.flip: auto is decided when a run begins; give true or false here")
    if settings.flip:
        steps.append(AlternatingFlip() if settings.alternate else Flip())
    if settings.brightness:
        steps.append(Brightness(settings.brightness))
    if settings.contrast != (1.0, 1.0):
        steps.append(Contrast(*settings.contrast))
    if settings.cutout:
        steps.append(Cutout(settings.cutout))
    return Compose(*steps) if steps else None


# --- images for a trained network -------------------------------------------------------------------------------------


def own_dataset(
    folder: Path, split: str = "test", root: Path | None = None, options: Mapping[str, object] | None = None
) -> ImageDataset:
    """The dataset that a run tests on, loaded with the run's own options and limit.

    Args:
        folder: where the run is.
        split: name of the split.
        root: folder that is searched first; that of the recipe by default.
        options: arguments of the dataset, which replace those of the run.
    """
    run = RunFolder(folder)
    if not run.has_recipe():
        raise PaircapsError(f"{folder}: has no {run.config.name} to tell the dataset by: give --data NAME")
    settings = run.read_recipe().data
    name = tested_name(settings)
    chosen = {**_with_on_error(name, settings, tested_options(settings)), **(options or {})}
    try:
        dataset = open_dataset(name, split, root or settings.folder, chosen)
    except PaircapsError as error:
        needed = plugin_sentence(folder)
        if not needed:
            raise
        raise PaircapsError(*error.lines_between(after=needed)) from None
    return dataset.limit(settings.limit, settings.seed)


def require_shape(network: Network, dataset: ImageDataset) -> None:
    """Raise an error if the images have another size or other channels than the network takes."""
    channels, height, width = dataset.shape
    wanted = network.spec.preparation
    if channels != network.model.in_channels or (height, width) not in (wanted.size, wanted.crop):
        size = "×".join(map(str, (*wanted.size, network.model.in_channels)))
        sides = wanted.size[0] if wanted.size[0] == wanted.size[1] else f"'{wanted.size}'"
        advice = [f"--option image_size={sides}"] if (height, width) != wanted.size else []
        advice += [f"--option channels={network.model.in_channels}"] if channels != network.model.in_channels else []
        raise PaircapsError(
            f"{dataset!r}: its images are of another shape than the network's, {size}; a dataset that can be made or "
            f"read so takes {' '.join(advice)}"
        )


def require_classes(network: Network, dataset: ImageDataset) -> None:
    """Raise an error if the classes are not those of the network."""
    if dataset.classes != network.classes:
        raise PaircapsError(
            f"{dataset!r}: its classes are {', '.join(dataset.classes)}; the network knows {', '.join(network.classes)}"
        )


def require_masks(network: Network, dataset: ImageDataset) -> None:
    """Raise an error if a network learns masks and the images have none, or masks alone tell what is in them."""
    if network.has_masks and not dataset.has_masks:
        raise RecipeError(
            f"model.name: {network.spec.model} learns masks, and {dataset!r} has none; multi-mnist and multi-glyphs "
            "have them, and a folder of pictures with data.options.masks"
        )
    if dataset.info.made_for_masks and not network.has_masks:
        raise RecipeError(
            f"model.name: {network.spec.model} classifies images, and {dataset!r} has masks in place of classes; "
            "caps-segment and unet-twin learn masks"
        )


def require_fitting(network: Network, dataset: ImageDataset) -> None:
    """Raise an error if the network cannot be evaluated on the dataset: by shape, labels per image or classes."""
    require_shape(network, dataset)
    if dataset.labels_per_image != network.spec.labels_per_image:
        raise PaircapsError(
            f"{dataset!r}: its images have {dataset.labels_per_image} labels each, the network was trained for "
            f"{network.spec.labels_per_image}"
        )
    require_classes(network, dataset)
    require_masks(network, dataset)
