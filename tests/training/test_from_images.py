"""Batch size, epochs and flips that follow from the images, and the recipe ``folder`` that asks for them."""

import pytest
from training.shapes import draw_shapes

from paircaps.errors import RecipeError
from paircaps.training import train
from paircaps.training.assemble import training_loader
from paircaps.training.datasets import load_datasets
from paircaps.training.distributed import Processes
from paircaps.training.from_images import choose_batch_size, choose_epochs, decide, reason_against_flips
from paircaps.training.recipes import load_recipe
from paircaps.training.run_folder import RunFolder


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """Twelve pictures of each shape."""
    return draw_shapes(tmp_path_factory.mktemp("pictures") / "shapes", each=12, sides=(20, 40))


def own(folder, **sections):
    sections["data"] = {"name": f"{folder}/", **sections.get("data", {})}
    return load_recipe("folder", sections)


def test_few_images_make_small_batches_and_many_epochs():
    assert [choose_batch_size(images) for images in (1, 6, 40, 121, 400, 2000, 10**6)] == [4, 4, 4, 16, 64, 64, 64]
    epochs = [choose_epochs(images) for images in (1, 6, 121, 2000, 10**6)]
    assert epochs == [300, 300, 118, 29, 20]


@pytest.mark.parametrize(
    ("classes", "reason"),
    [
        (("cat", "dog"), None),
        (("bright", "dark"), None),
        (("T-shirt", "dress", "X-ray"), None),
        (("digit-6", "digit-9"), "class 'digit-6' is named after a character"),
        (("upright piano", "harp"), None),
        (("b", "d"), "class 'b' is named after a character"),
        (("10", "11"), "class '10' is named after a character"),
        (("letter_q", "letter_p"), "class 'letter_q' is named after a character"),
        (("Three", "Four"), "class 'Three' is named after a character"),
        (("up", "LeftArrow"), "class 'LeftArrow' is named after a side"),
        (("straight", "turn-right"), "class 'turn-right' is named after a side"),
        (("arrowleft", "arrowright"), "classes are named after the sides left and right"),
        (("猫", "犬"), "class '猫' is named after a character"),
    ],
)
def test_classes_that_a_mirror_could_change_are_known_by_their_names(classes, reason):
    assert reason_against_flips(classes) == reason


def test_what_was_decided_is_said_with_the_reason():
    recipe, sentence = decide(load_recipe("folder"), 121, ("left", "right"))
    assert (recipe.train.batch_size, recipe.train.epochs, recipe.augment.flip) == (16, 118, False)
    assert sentence == (
        "121 images to train on: train.batch_size 16, train.epochs 118, "
        "augment.flip false (class 'left' is named after a side)"
    )
    assert decide(load_recipe("folder"), 121, ("cat", "dog"))[0].augment.flip is True


def test_a_value_that_is_given_is_not_decided():
    given = {"train": {"batch_size": 7, "epochs": 3}, "augment": {"flip": False}}
    recipe, _ = decide(load_recipe("folder", given), 121, ("cat", "dog"))
    assert (recipe.train.batch_size, recipe.train.epochs, recipe.augment.flip) == (7, 3, False)


def test_a_batch_is_shared_by_all_processes_and_parts():
    recipe, _ = decide(load_recipe("folder", {"train": {"accumulate": 3}}), 121, ("cat", "dog"), world_size=2)
    assert recipe.train.batch_size == 18


def test_a_run_keeps_what_was_decided_when_it_began(shapes, tmp_path, capsys):
    recipe = own(shapes, train={"steps": 2}, model={"options": {"widths": [8, 8, 8]}})
    train(recipe, tmp_path / "run", quiet=False)
    assert "24 images to train on: train.batch_size 4, train.epochs 265, augment.flip true" in capsys.readouterr().err
    begun = RunFolder(tmp_path / "run").read_recipe()
    assert (begun.train.batch_size, begun.train.epochs, begun.augment.flip) == (4, 265, True)
    assert begun.data.options["split_by"] == "class"
    assert train(recipe, tmp_path / "run").resumed_at is None, "the same run, which is finished"


def test_a_recipe_with_undecided_values_is_refused_where_no_run_begins(shapes):
    recipe = own(shapes)
    datasets = load_datasets(recipe.data)
    with pytest.raises(RecipeError, match=r"train.batch_size: auto is decided when a run begins"):
        training_loader(own(shapes, augment={"flip": False}), datasets, Processes())
    with pytest.raises(RecipeError, match=r"augment.flip: auto is decided when a run begins"):
        training_loader(recipe, datasets, Processes())


def test_the_recipe_folder_wants_a_path():
    with pytest.raises(RecipeError, match=r"data.name: the path of your folder of pictures is missing"):
        load_datasets(load_recipe("folder").data)
