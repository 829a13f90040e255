import shutil
from dataclasses import fields, replace

import pytest
import torch
from torch.nn.modules.batchnorm import _BatchNorm
from training.shapes import draw_shapes

from paircaps.data import (
    AffineWarp,
    AlternatingFlip,
    Brightness,
    Contrast,
    Cutout,
    Flip,
    RandomCrop,
    Translate,
    load_dataset,
)
from paircaps.errors import PaircapsError, RecipeError
from paircaps.models import WhiteningStem
from paircaps.training import train
from paircaps.training.assemble import build_objective, fit_network, require_trainable, training_loader
from paircaps.training.datasets import augmentation, hold_back, load_datasets, own_dataset
from paircaps.training.distributed import Processes
from paircaps.training.recipe import Augment, Data
from paircaps.training.recipes import load_recipe
from paircaps.training.schedule import count_steps, count_training_images, images_per_step, steps_per_epoch


def test_what_is_held_back_is_not_trained_on_and_does_not_depend_on_the_training_seed():
    glyphs = load_dataset("glyphs", length=100)
    train, validation = hold_back(glyphs, 0.2, seed=0)
    assert (len(train), len(validation)) == (80, 20)
    assert sorted([*train.index.tolist(), *validation.index.tolist()]) == list(range(100))
    again = hold_back(glyphs, 0.2, seed=0)[1]
    assert again.index.equal(validation.index)
    assert not hold_back(glyphs, 0.2, seed=1)[1].index.equal(validation.index)
    assert hold_back(glyphs, 0.0, 0) == (glyphs, None)
    with pytest.raises(RecipeError, match=r"0.9 of 1 images leaves none"):
        hold_back(glyphs.limit(1), 0.9, 0)


def test_a_limit_is_of_each_split():
    datasets = load_datasets(Data("glyphs", limit=50, validation=0.1))
    assert (len(datasets.train), len(datasets.validation), len(datasets.test)) == (45, 5, 50)
    facts = datasets.facts()
    assert (facts["train"], facts["validation"], facts["test"]) == (45, 5, 50)


def test_images_that_never_change_are_kept_and_are_the_same():
    kept = load_datasets(Data("glyphs", limit=40, validation=0.0)).train
    drawn = load_dataset("glyphs").limit(40)
    assert kept.in_memory() is kept
    assert torch.equal(kept.batch([3, 1]).images, drawn.batch([3, 1]).images)
    assert torch.equal(kept.pose, drawn.pose)
    fresh = load_datasets(Data("translated-glyphs", options={"fresh": True}, limit=40, validation=0.0)).train
    assert fresh.changes_by_epoch
    assert not torch.equal(fresh.batch([3], 0).images, fresh.batch([3], 1).images)


def test_the_test_set_can_be_another_one():
    datasets = load_datasets(Data("translated-glyphs", test="affine-glyphs", options={"fresh": True}, limit=9))
    assert datasets.test.info.name == "affine-glyphs"
    assert not datasets.test.changes_by_epoch  # options are those of the training set
    same = load_datasets(Data("glyphs", options={"seed": 5}, limit=9))
    assert torch.equal(same.test.images, load_dataset("glyphs", "test", seed=5).limit(9).images)


def test_a_test_set_of_other_classes_is_refused(tmp_path):
    from PIL import Image

    for split in ("train", "test"):
        for name in ("cat", "dog"):
            (tmp_path / split / name).mkdir(parents=True)
            Image.new("L", (28, 28)).save(tmp_path / split / name / "one.png")
    options = {"channels": 1, "image_size": 28}
    with pytest.raises(RecipeError, match=r"data.test: .* has classes cat, dog, glyphs has classes 0, 1, 2"):
        load_datasets(Data("glyphs", test=f"{tmp_path}/", test_options=options))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (Data("glyphs", test="affine-glyphs"), "affine-glyphs has images of 1×40×40, glyphs has images of 1×28×28"),
        (Data("glyphs", test_options={"image_size": 40}), "has images of 1×40×40"),
        (Data("glyphs", options={"image_size": 36}, test="multi-glyphs"), "labels an image: 2"),
        (Data("multi-glyphs", test="glyphs", test_options={"image_size": 36}), "labels an image: 1"),
    ],
)
def test_a_test_set_that_does_not_fit_is_refused_before_the_training(data, complaint):
    with pytest.raises(RecipeError, match=complaint):
        load_datasets(data)


@pytest.mark.parametrize("options", [{"colour": 1}, {"image_size": "big"}])
def test_wrong_options_of_a_dataset_are_errors_of_the_recipe(options):
    with pytest.raises(RecipeError, match="data: "):
        load_datasets(Data("glyphs", options=options))


def test_augmentation_in_its_order():
    everything = Augment(
        rotation=10,
        scale=(0.9, 1.1),
        shear=0.1,
        translate=2,
        crop_padding=4,
        crop_border="reflect",
        crop_size=20,
        flip=True,
        alternate=True,
        brightness=0.1,
        contrast=(0.5, 1.5),
        cutout=5,
    )
    assert all(getattr(everything, part.name) != part.default for part in fields(Augment)), "a new key belongs here"
    assert augmentation(everything).steps == (
        AffineWarp(10, (0.9, 1.1), 0.1),
        Translate(2),
        RandomCrop(4, 20, "reflect"),
        AlternatingFlip(),
        Brightness(0.1),
        Contrast(0.5, 1.5),
        Cutout(5),
    )
    assert augmentation(Augment()) is None
    assert augmentation(Augment(flip=True)).steps == (Flip(),)


def recipe(**overrides):
    return load_recipe("glyphs", {"data": {"limit": 100}, **overrides})


def test_steps_are_those_of_epochs_or_their_own_number_whichever_is_less():
    assert count_steps(recipe(train={"epochs": 3}), 10) == 30
    assert count_steps(recipe(train={"epochs": 3, "steps": 7}), 10) == 7
    assert count_steps(load_recipe("table3", {"train": {"epochs": 2}}), 10) == 20


def test_a_last_batch_that_is_not_full_is_left_out_unless_it_is_the_only_one():
    few = recipe(train={"batch_size": 64})
    loader = training_loader(few, load_datasets(few.data), Processes())
    assert [len(batch) for batch in loader.epoch(0)] == [64]
    only = recipe(train={"batch_size": 128})
    loader = training_loader(only, load_datasets(only.data), Processes())
    assert [len(batch) for batch in loader.epoch(0)] == [90]


@pytest.mark.parametrize(("limit", "validation", "size"), [(99, 0.1, 64), (99, 0.1, 128), (90, 0.0, 30), (31, 0.5, 2)])
def test_the_loader_has_as_many_batches_as_are_counted(limit, validation, size):
    chosen = recipe(data={"limit": limit, "validation": validation}, train={"batch_size": size})
    loader = training_loader(chosen, load_datasets(chosen.data), Processes())
    images = count_training_images(60_000, chosen.data)
    assert images == len(loader.dataset)
    assert steps_per_epoch(images, size) == len(loader)
    assert {images_per_step(images, size)} == {len(batch) for batch in loader.epoch(0)}


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        # also where auto means margin, or the model would be saved with a loss that cannot be built again
        ({"loss": {"label_smoothing": 0.1}, "model": {"routing": "em"}}, "loss: label_smoothing is cross-entropy's"),
        ({"train": {"batch_size": 1}}, "batch norm needs two images at a time"),
        ({"train": {"batch_size": 4, "accumulate": 4}}, "batch norm needs two images at a time"),
        ({"data": {"limit": 1, "validation": 0.0}}, "batch norm needs two images"),
        ({"augment": {"crop_size": 40}}, r"augment.crop_size: crop \(40, 40\) is larger than the image"),
        ({"model": {"options": {"pose_dim": 15}}}, "model: .*square"),
        ({"model": {"options": {"depth": 15}}}, "model: .*no option 'depth'"),
        ({"model": {"routing_options": {"iterations": 2}}}, "model: .*no option 'iterations'"),
        (
            {"data": {"name": "multi-glyphs"}, "loss": {"name": "cross-entropy"}},
            "loss: cross-entropy needs one label",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(overrides, complaint):
    chosen = recipe(**{**overrides, "data": {"limit": 100, **overrides.get("data", {})}})
    with pytest.raises(RecipeError, match=complaint):
        assemble(chosen)


def test_no_process_may_be_left_without_images():
    chosen = recipe(train={"batch_size": 16, "accumulate": 8})
    datasets = load_datasets(chosen.data)
    objective = build_objective(chosen, datasets, torch.device("cpu"))
    require_trainable(chosen, objective, datasets, Processes())
    with pytest.raises(RecipeError, match="4 processes"):
        require_trainable(chosen, objective, datasets, Processes(0, 4))


def assemble(chosen):
    datasets = load_datasets(chosen.data)
    objective = build_objective(chosen, datasets, torch.device("cpu"))
    require_trainable(chosen, objective, datasets, Processes())


def test_originals_cannot_be_augmented():
    chosen = recipe(data={"name": "multi-glyphs", "limit": 9}, loss={"decoder": "deconv"}, augment={"flip": True})
    with pytest.raises(RecipeError, match="drawn beside their originals"):
        training_loader(chosen, load_datasets(chosen.data), Processes())


def test_a_batch_must_be_shared_evenly():
    with pytest.raises(RecipeError, match="128 images cannot be shared by 3 processes"):
        training_loader(recipe(), load_datasets(recipe().data), Processes(0, 3))


def test_an_augmentation_that_does_not_fit_the_images_is_refused_before_the_first_step():
    """A step that fails on the images used to be a traceback in the first batch."""
    recipe = load_recipe("glyphs", {"augment": {"crop_size": 60}, "data": {"limit": 100}})
    datasets = load_datasets(recipe.data)
    with pytest.raises(RecipeError, match=r"augment: RandomCrop\(.*\) does not fit into images of 28×28"):
        training_loader(recipe, datasets, Processes())


def test_a_border_that_cannot_be_reflected_is_refused_before_the_first_step():
    chosen = recipe(augment={"crop_padding": 28, "crop_border": "reflect"})
    with pytest.raises(RecipeError, match="augment: images of 28×28 cannot be reflected over 28 pixels"):
        training_loader(chosen, load_datasets(chosen.data), Processes())


def test_the_momentum_of_batch_norm_is_the_recipes():
    def momenta(**train):
        chosen = recipe(model={"name": "fast-caps-tiny"}, train=train)
        objective = build_objective(chosen, load_datasets(chosen.data), torch.device("cpu"))
        return {norm.momentum for norm in objective.modules() if isinstance(norm, _BatchNorm)}

    assert momenta() == {0.1}
    assert momenta(norm_momentum=0.3) == {0.3}


def test_a_network_is_fitted_to_its_training_images_as_it_sees_them():
    chosen = recipe(model={"name": "fast-caps-tiny"}, augment={"crop_size": 24})
    datasets = load_datasets(chosen.data)
    network = build_objective(chosen, datasets, torch.device("cpu")).network
    expected = WhiteningStem(1)
    expected.fit(network.model_input(datasets.train.images))
    fit_network(network, datasets.train, Processes())
    stem = network.model.backbone.stem
    assert torch.equal(stem.weight, expected.weight)
    assert torch.equal(stem.bias, expected.bias)
    assert not torch.equal(stem.weight, WhiteningStem(1).weight)


# --- folders of pictures ---------------------------------------------------------------------------------------------


def own_pictures(folder, each=20):
    return draw_shapes(folder / "shapes", each=each, sides=(16, 24))


def test_every_class_of_a_folder_gives_its_share_to_validation_and_test(tmp_path):
    settings = Data(f"{own_pictures(tmp_path)}/", validation=0.25)
    datasets = load_datasets(settings)
    parts = (datasets.train, datasets.validation, datasets.test)
    assert [part.class_counts().tolist() for part in parts] == [[12] * 3, [4] * 3, [4] * 3]
    other = load_datasets(replace(settings, seed=1))
    assert not torch.equal(other.validation.images, datasets.validation.images)


def test_copies_are_never_held_back_from_each_other(tmp_path):
    folder = own_pictures(tmp_path)
    for path in list(folder.glob("*/*")):
        shutil.copy(path, path.with_name(f"copy of {path.name}"))
    datasets = load_datasets(Data(f"{folder}/", validation=0.3))
    parts = (datasets.train, datasets.validation, datasets.test)
    trained, held_back, tested = ({image.numpy().tobytes() for image in part.images} for part in parts)
    assert not trained & held_back
    assert not trained & tested
    assert not held_back & tested


def test_a_run_of_an_earlier_version_keeps_its_split(tmp_path):
    """Its config.toml has no word on the split; pictures that it was trained on must not become test pictures."""
    folder = own_pictures(tmp_path)
    small = {"model": {"options": {"widths": [8, 8, 8]}}, "train": {"steps": 1, "epochs": 1, "batch_size": 4}}
    chosen = load_recipe("folder", {"data": {"name": f"{folder}/"}, **small})
    old = replace(chosen, data=chosen.data.split_by("content"))
    train(old, tmp_path / "run")
    config = tmp_path / "run" / "config.toml"
    text = config.read_text()
    assert '"split_by" = "content", ' in text
    config.write_text(text.replace('"split_by" = "content", ', ""))
    # what is evaluated, and what the same command goes on with
    by_content = load_dataset(folder, "test", image_size=48, fit="pad", split_by="content")
    assert torch.equal(own_dataset(tmp_path / "run").images, by_content.images)
    assert not torch.equal(by_content.labels, load_dataset(folder, "test", image_size=48, fit="pad").labels)
    assert train(chosen, tmp_path / "run").resumed_at is None
    # a new run says how it is split
    train(chosen, tmp_path / "run", fresh=True)
    assert '"split_by" = "class"' in config.read_text()


def test_a_run_lists_the_pictures_that_it_skipped(tmp_path):
    folder = own_pictures(tmp_path)
    for number in range(3):
        (folder / "circle" / f"bad {number}.png").write_bytes(b"rubbish %d" % number)
    small = {"model": {"options": {"widths": [8, 8, 8]}}, "train": {"steps": 1, "batch_size": 4}}
    wanted = {"data": {"name": f"{folder}/"}, **small}
    with pytest.raises(PaircapsError, match=r"bad \d.png: not a PNG"):
        train(load_recipe("folder", wanted), tmp_path / "run")
    wanted["data"]["on_error"] = "skip"
    with pytest.warns(UserWarning, match=r"skipped, which cannot be read:\n  .*bad \d.png: not a PNG"):
        result = train(load_recipe("folder", wanted), tmp_path / "run")
    assert result.trained["skipped_pictures"] == 3
    lines = (tmp_path / "run" / "skipped.txt").read_text().splitlines()
    assert sorted(line.split("/")[-1].split(":")[0] for line in lines) == [f"bad {number}.png" for number in range(3)]
    with pytest.warns(UserWarning, match="skipped"):
        tested = own_dataset(tmp_path / "run")
    assert len(tested) + len(tested.info.skipped) == 5 + 4 + 4
    with pytest.raises(RecipeError, match=r"data.on_error skips damaged pictures of folders; glyphs is none"):
        load_recipe("glyphs", {"data": {"on_error": "skip"}})


def test_a_folder_to_test_on_keeps_its_split_too(tmp_path):
    data = Data("glyphs", test=f"{own_pictures(tmp_path)}/")
    assert data.split_by("class").test_options == {"split_by": "class"}
    assert data.split_by("class").options == {}
    for word in ("class", "content"):
        assert data.split_like(data.split_by(word)) == data.split_by(word)
