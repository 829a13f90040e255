import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paircaps.data import load_dataset
from paircaps.errors import RecipeError, TrainingError
from paircaps.models import count_parameters, create_model, published_routing, registry
from paircaps.training.recipe import Model, Recipe, Run, Train, options_of
from paircaps.training.recipe_io import (
    KEYS,
    SECTIONS,
    differences,
    parse_setting,
    parse_toml,
    recipe_from_tree,
    to_toml,
)
from paircaps.training.recipes import list_recipes, load_recipe
from paircaps.training.run_folder import RunFolder


@pytest.mark.parametrize("name", list_recipes())
def test_every_shipped_recipe_is_whole_and_survives_its_own_text(name):
    recipe = load_recipe(name)
    assert recipe_from_tree(parse_toml(to_toml(recipe), "text")) == recipe


@pytest.mark.parametrize("name", list_recipes())
def test_every_shipped_recipe_begins_with_the_command_that_runs_it(name):
    from importlib import resources

    first = (resources.files("paircaps.training.recipes") / f"{name}.toml").read_text().splitlines()[0]
    options = r"(--hours \d+ |--data.name ./\w+ (--data.options.masks \S+ )?)?--out runs/"
    command = "demo$" if name == "demo" else f"train {re.escape(name)} {options}"
    assert re.match(f"# paircaps {command}", first)


# what facts.md section 3 says, written down a second time
@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [
        ("fig4-cifar10", 1_002_816, "adam 0.001 1e-07 128 50 None margin 0 False True"),
        ("fig4-fashion-mnist", 705_728, "adam 0.001 1e-07 128 50 None margin 0 False True"),
        ("fig4-svhn", 1_002_816, "adam 0.001 1e-07 128 50 None margin 0 False True"),
        ("fig5-cifar10", 1_002_816, "adam 0.001 1e-07 128 100 None margin 4 True True"),
        ("fig5-fashion-mnist", 705_728, "adam 0.001 1e-07 128 100 None margin 4 False True"),
        ("fig5-svhn", 1_002_816, "adam 0.001 1e-07 128 100 None margin 4 False True"),
        ("table2-cifar10", 903_760, "sgd 0.1 1e-07 128 163 None cross-entropy 4 True True"),
        ("table2-fashion-mnist", 903_472, "sgd 0.1 1e-07 128 163 None cross-entropy 4 True True"),
        ("table2-svhn", 903_760, "sgd 0.1 1e-07 128 163 None cross-entropy 4 False True"),
        ("table2-small-cifar10", 320_464, "sgd 0.1 1e-07 128 163 None cross-entropy 4 True True"),
        ("table2-small-fashion-mnist", 320_176, "sgd 0.1 1e-07 128 163 None cross-entropy 4 True True"),
        ("table2-small-svhn", 320_464, "sgd 0.1 1e-07 128 163 None cross-entropy 4 False True"),
        ("table3", 195_376, "adam 0.0001 1e-07 128 None 40000 margin 0 False False"),
        ("table4", 195_376, "adam 0.0001 1e-07 128 None 40000 margin 0 False False"),
        ("table5", 292_592, "adam 0.0001 1e-07 128 100 None margin 0 False False"),
        ("table6", 196_720, "sgd 0.01 1e-07 64 120 None auto 0 False False"),
    ],
)
def test_the_recipes_are_the_papers(name, parameters, said):
    recipe = load_recipe(name)
    optimiser, train, augment = recipe.optimiser, recipe.train, recipe.augment
    found = (optimiser.name, optimiser.lr, optimiser.eps, train.batch_size, train.epochs, train.steps)
    found += (recipe.loss.name, augment.crop_padding, augment.flip, recipe.data.standardise)
    assert " ".join(map(str, found)) == said
    channels = 3 if recipe.data.name in ("cifar10", "svhn") else 1
    sizes = {"fashion-mnist": 28, "translated-mnist": 40, "multi-mnist": 36}
    size = sizes.get(recipe.data.name, 32)
    classes = 5 if recipe.data.name == "smallnorb" else 10
    model = create_model(recipe.model.name, classes, channels, size, recipe.model.routing, **recipe.model.options)
    assert count_parameters(model) == parameters


def test_schedules_and_crops_of_the_paper():
    for name, decay in (("table2-cifar10", 1e-4), ("table2-svhn", 1e-4), ("table6", 1e-4), ("fig4-svhn", 0)):
        optimiser = load_recipe(name).optimiser
        assert (optimiser.momentum, optimiser.weight_decay) == (0.9, decay)
    assert load_recipe("table2-svhn").schedule.factor == 0.1
    fifth = load_recipe("table5")
    assert (fifth.loss.decoder, fifth.loss.decoder_weight, fifth.model.name) == ("deconv", 0.0005, "resnet-caps-medium")
    assert load_recipe("table2-svhn").schedule.drops == (81, 122)
    sixth = load_recipe("table6")
    assert (sixth.schedule.name, sixth.schedule.every, sixth.schedule.factor) == ("halving", 20, 0.5)
    assert (sixth.augment.crop_size, sixth.augment.contrast) == (32, (0.5, 1.5))
    assert sixth.data.options == {"image_size": 48}
    third = load_recipe("table3")
    assert (third.loss.decoder, third.loss.decoder_weight, third.data.test) == ("deconv", 0.0005, "affnist")


@pytest.mark.parametrize(
    ("name", "size", "channels", "parameters"),
    [
        ("sabour-mnist", 28, 1, 6_804_224),
        ("sabour-fashion-mnist", 28, 1, 6_804_224),
        # convolutions of 62,464 and 10,617,344, and 4·4·64 primary capsules with 8·10·16 weights each
        ("sabour-cifar10", 24, 3, 62_464 + 10_617_344 + 4 * 4 * 64 * 8 * 10 * 16),
        ("sabour-svhn", 32, 3, 15_616 + 64 * 96 * 81 + 96 + 8 * 8 * 16 * 6 * 10 * 8),
        ("nair", 28, 1, 6_804_224),
        ("hinton", 32, 1, 318_964),
        ("aff-capsnet", 40, 1, 5_330_944),
    ],
)
def test_the_recipes_of_others_are_theirs(name, size, channels, parameters):
    recipe = load_recipe(name)
    dynamic = name.startswith(("sabour", "nair"))
    options = recipe.model.routing_options
    assert options.get("iterations") == (3 if dynamic else None)
    assert options.get("none_of_the_above", False) == (name == "sabour-cifar10")
    assert recipe.model.routing == ("dynamic" if dynamic else published_routing(recipe.model.name))
    assert recipe.loss.decoder == ("none" if name == "hinton" else "dense")
    assert recipe.augment.translate == (2 if name in ("sabour-mnist", "sabour-fashion-mnist") else 0)
    with torch.device("meta"):
        model = create_model(
            recipe.model.name, 10, channels, size, recipe.model.routing, routing_options=options, **recipe.model.options
        )
    assert count_parameters(model) == parameters
    assert recipe.augment.crop_size in (None, size)


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (
            {"train": {"epocs": 1}},
            "unknown key 'train.epocs'; did you mean 'train.epochs'? Keys of train: epochs, steps",
        ),
        ({"trian": {}}, "unknown section 'trian'; did you mean 'train'? Sections: model, data"),
        ({"train": 3}, "train is a section of keys, got 3"),
        ({"train": {"epochs": "many"}}, "train.epochs must be a whole number or auto or null, got 'many'"),
        ({"train": {"epochs": 0}}, "train.epochs must be at least 1, got 0"),
        ({"train": {"epochs": 1.5}}, "train.epochs must be a whole number or auto or null, got 1.5"),
        ({"train": {"precision": "fp8"}}, "train.precision must be one of auto, fp32, bf16, fp16, got 'fp8'"),
        ({"train": {"accumulate": 3}}, "train.accumulate must divide batch_size, 128, got 3"),
        (
            {"model": {"routing": "dynamc"}},
            "model: unknown routing 'dynamc'; did you mean 'dynamic'? Known: attention, dynamic, ",
        ),
        ({"model": {"name": "vgg"}}, "model: unknown name 'vgg'"),
        ({"model": {"options": 3}}, "model.options must be a table"),
        ({"augment": {"scale": [1]}}, "augment.scale must be a list of 2 numbers, got [1]"),
        ({"augment": {"scale": [2, 1]}}, "augment.scale must be [least, most], got [2.0, 1.0]"),
        ({"augment": {"flip": 1}}, "augment.flip must be true or false or auto, got 1"),
        ({"optimiser": {"lr": float("nan")}}, "optimiser.lr must be from 0"),
        (
            {"optimiser": {"nesterov": True, "momentum": 0.0}},
            "optimiser.nesterov needs sgd or muon with a momentum above 0, got adam with 0.0",
        ),
        ({"optimiser": {"rescale": True}}, "optimiser.rescale is muon's, got adam"),
        ({"optimiser": {"rest": "muon"}}, "optimiser.rest must be one of sgd, adam, adamw, got 'muon'"),
        ({"optimiser": {"muon_iterations": 0}}, "optimiser.muon_iterations must be at least 1, got 0"),
        ({"optimiser": {"rates": {"*.bias": -1.0}}}, "optimiser.rates of '*.bias' must be from 0 to"),
        ({"optimiser": {"rates": 2.0}}, "optimiser.rates must be a table"),
        ({"augment": {"alternate": True}}, "augment.alternate says how flip mirrors images, and flip is off"),
        ({"augment": {"crop_border": "white"}}, "augment.crop_border must be one of black, reflect, got 'white'"),
        ({"augment": {"cutout": -1}}, "augment.cutout must be at least 0, got -1"),
        ({"evaluate": {"views": "mirror"}}, "evaluate.views must be one of none, flip, shift, flip-shift, got"),
        ({"evaluate": {"view": "flip"}}, "unknown key 'evaluate.view'; did you mean 'evaluate.views'?"),
        ({"evaluate": {"mirror": "yes"}}, "unknown key 'evaluate.mirror'"),
        ({"schedule": {"name": "trapezoid", "cool_down": 1.5}}, "schedule.cool_down must be from 0 to 1, got 1.5"),
        ({"train": {"norm_momentum": 2.0}}, "train.norm_momentum must be from 0 to 1, got 2.0"),
        ({"run": {"threads": "many"}}, "run.threads must be a whole number or auto, got 'many'"),
        (
            {"loss": {"name": "hinge"}},
            "loss: unknown name 'hinge'. Known: auto, centripetal, cross-",
        ),
        ({"train": {"steps": "2"}}, "train.steps must be a whole number or null, got '2'"),
        ({"train": {"seed": 2**70}}, "train.seed must be from -9223372036854775808"),
        (
            {"model": {"options": {"routing": "em"}}},
            "model.options cannot hold 'routing', which comes from model.routing",
        ),
        ({"schedule": {"name": "drops"}}, "schedule.drops must name an epoch"),
        ({"run": {"threads": 100_000}}, "run.threads must be from 0 to 512, got 100000"),
        ({"run": {"keep": 1}}, "run.keep must be from 2 to 1000, got 1"),
        ({"run": {"device": "tpu"}}, "run.device must be one of auto, cpu, cuda, mps, got 'tpu'"),
        ({"data": {"validation": 1.0}}, "data.validation must be from 0 to 0.9, got 1.0"),
        ({"schedule": {"name": "one-cycle", "warm_up": 5.0}}, "schedule.warm_up must be from 0 to 1, got 5.0"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_allowed(overrides, complaint):
    with pytest.raises(RecipeError) as error:
        load_recipe("glyphs", overrides)
    assert complaint in str(error.value)


def test_the_routing_is_that_of_the_model_unless_a_recipe_names_one(tmp_path, monkeypatch):
    monkeypatch.setitem(registry._ROUTINGS, "capsnet", "dynamic")
    assert load_recipe("glyphs").model.routing == "fm"
    assert load_recipe("glyphs", {"model": {"name": "capsnet"}}).model.routing == "dynamic"
    assert load_recipe("glyphs", {"model": {"name": "capsnet-pool"}}).model.routing == "dynamic"
    assert load_recipe("glyphs", {"model": {"name": "capsnet", "routing": "em"}}).model.routing == "em"
    named = load_recipe("glyphs", {"model": {"name": "capsnet", "routing": "auto"}})
    assert 'routing = "dynamic"' in to_toml(named)
    monkeypatch.setitem(registry._ROUTINGS, "capsnet", "fm")  # a run goes on with what it began with
    assert recipe_from_tree(parse_toml(to_toml(named), "config.toml")) == named
    assert Model() == Model(routing="fm")


def test_either_epochs_or_steps():
    with pytest.raises(ValueError, match="epochs or steps must be given"):
        Train()


def test_unknown_recipes_and_files(tmp_path, monkeypatch):
    def refused(name, words):
        with pytest.raises(RecipeError) as error:
            load_recipe(name)
        assert words in str(error.value)

    refused("glyps", "unknown recipe 'glyps'; did you mean 'glyphs'? Known: aff-")
    refused("nope.toml", "nope.toml: cannot read the recipe: No such file")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text("")
    refused("mine", "write './mine'")
    (tmp_path / "bad.toml").write_text("[train\n")
    refused("bad.toml", "bad.toml: not TOML")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    refused("binary.toml", "not a TOML text")
    (tmp_path / "round.toml").write_text('base = "./round.toml"')
    refused("./round.toml", "a recipe cannot be its own base")
    (tmp_path / "odd.toml").write_text("base = 3")
    refused("odd.toml", "base must be the name of a recipe, got 3")


def test_a_recipe_of_ones_own_on_a_shipped_one(tmp_path):
    (tmp_path / "mine.toml").write_text('base = "glyphs"\n[train]\nseed = 7\n')
    recipe = load_recipe(tmp_path / "mine.toml", {"train": {"epochs": 9}})
    assert (recipe.train.seed, recipe.train.epochs, recipe.train.batch_size) == (7, 9, 128)


def test_differences_show_what_and_ignore_how():
    one, two = load_recipe("glyphs"), load_recipe("glyphs", {"train": {"seed": 3}, "data": {"limit": 5}})
    assert differences(one, two) == ["data.limit: not set there, 5 here", "train.seed: 0 there, 3 here"]
    assert differences(one, load_recipe("glyphs", {"run": {"threads": 3, "keep": 9}})) == []


@pytest.mark.parametrize(("mirror", "views"), [("true", "flip"), ("false", "none")])
def test_the_mirror_images_of_an_earlier_version_are_views(mirror, views):
    text = f"[train]\nepochs = 1\n[evaluate]\nevery = 3\nmirror = {mirror}\n"
    recipe = recipe_from_tree(parse_toml(text, "config.toml"))
    assert (recipe.evaluate.views, recipe.evaluate.every) == (views, 3)
    new = text.replace(f"mirror = {mirror}", f'views = "{views}"')
    assert recipe == recipe_from_tree(parse_toml(new, "config.toml"))
    assert "mirror" not in to_toml(recipe)


def test_mirror_images_of_an_earlier_version_count_above_the_views_of_a_base(tmp_path):
    (tmp_path / "mine.toml").write_text('base = "fast-cifar10"\n[evaluate]\nmirror = false\n')
    assert load_recipe(tmp_path / "mine.toml").evaluate.views == "none"
    assert load_recipe("fast-cifar10", {"evaluate": {"mirror": True}}).evaluate.views == "flip"
    assert load_recipe(tmp_path / "mine.toml", {"evaluate": {"views": "shift"}}).evaluate.views == "shift"


@pytest.mark.parametrize("name", list_recipes())
def test_the_papers_recipes_keep_the_papers_momentum(name):
    paper = name.startswith(("table", "fig"))
    expected = 0.01 if paper else 0.4 if name.startswith("fast") else 0.1
    assert load_recipe(name).train.norm_momentum == expected


def test_rates_by_name_survive_their_own_text_in_their_order():
    rates = {"*.bias": 2.0, "layers.*": 0.5, "layers.0.*": 0.0}
    recipe = load_recipe("glyphs", {"optimiser": {"rates": rates}})
    again = recipe_from_tree(parse_toml(to_toml(recipe), "text"))
    assert list(again.optimiser.rates.items()) == list(rates.items())


def test_rates_in_another_order_are_another_recipe_and_options_in_another_order_are_not():
    # the last pattern that matches decides, so these two train the first layer differently
    one = load_recipe("glyphs", {"optimiser": {"rates": {"layers.*": 0.5, "layers.0.*": 0.0}}})
    two = load_recipe("glyphs", {"optimiser": {"rates": {"layers.0.*": 0.0, "layers.*": 0.5}}})
    assert [line.split(":")[0] for line in differences(one, two)] == ["optimiser.rates"]
    options = {"capsules": [10], "transform": "matmul"}
    one = load_recipe("glyphs", {"model": {"options": options}})
    two = load_recipe("glyphs", {"model": {"options": dict(reversed(options.items()))}})
    assert differences(one, two) == []


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_precision_that_the_machine_chooses_is_no_difference(precision):
    auto, chosen = load_recipe("glyphs"), load_recipe("glyphs", {"train": {"precision": precision}})
    assert auto.train.precision == "auto"
    assert differences(auto, chosen) == differences(chosen, auto) == []
    half = load_recipe("glyphs", {"train": {"precision": "fp16"}})
    assert differences(half, chosen) == [f'train.precision: "fp16" there, "{precision}" here']


@pytest.mark.parametrize(("threads", "chooses"), [("auto", True), (0, True), (1, False), (3, False)])
def test_threads_are_a_number_or_chosen(threads, chooses):
    run = load_recipe("glyphs", {"run": {"threads": threads}}).run
    assert run.threads == threads
    assert run.chooses_threads is chooses


def test_every_key_has_a_line_of_help():
    from docstring_parser import parse

    for section, kind in SECTIONS.items():
        described = {parameter.arg_name: parameter.description for parameter in parse(kind.__doc__).params}
        for key in (key.split(".")[1] for key in KEYS if key.startswith(f"{section}.")):
            assert described.get(key), f"{section}.{key}"


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
plain = st.one_of(
    st.none(), st.integers(-(10**9), 10**9), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), texts
)
trees = st.dictionaries(texts, st.one_of(plain, st.lists(st.integers(0, 9), max_size=3)), max_size=3)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(options=trees, folder=texts, lr=st.floats(0, 1e10), seed=st.integers(-(2**40), 2**40))
def test_any_recipe_survives_its_own_text(options, folder, lr, seed):
    tree = {"model": {"options": options}, "data": {"folder": folder}, "optimiser": {"lr": lr}, "train": {"seed": seed}}
    tree["train"]["epochs"] = 1
    recipe = recipe_from_tree(tree)
    assert recipe_from_tree(parse_toml(to_toml(recipe), "text")) == recipe


def test_a_null_among_options_survives_too():
    """TOML has no null: the run's own config.toml could not be read again, and the run not be resumed."""
    recipe = load_recipe("glyphs", {"model": {"options": {"vote_norm": None}}})
    again = recipe_from_tree(parse_toml(to_toml(recipe), "text"))
    assert again == recipe
    assert options_of(again.model.options) == {"vote_norm": None}
    assert options_of({"blocks": [1, 2]}) == {"blocks": (1, 2)}


def test_defaults_are_a_recipe():
    assert isinstance(Recipe(), Recipe)
    assert Run().checkpoint_every == 500
    assert load_dataset(Recipe().data.name, "test").classes


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("train.epochs=3", {"train": {"epochs": 3}}),
        ("loss.name=margin", {"loss": {"name": "margin"}}),
        ("augment.scale=(0.8, 1.2)", {"augment": {"scale": [0.8, 1.2]}}),
        ("augment.flip=True", {"augment": {"flip": True}}),
        ("data.limit=None", {"data": {"limit": None}}),
        ("model.options.blocks=[4, 4]", {"model": {"options": {"blocks": [4, 4]}}}),
    ],
)
def test_a_setting_is_a_tree(text, tree):
    assert parse_setting(text) == tree
    load_recipe("glyphs", tree)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("train.epochs", "must be SECTION.KEY=VALUE, got 'train.epochs'"),
        ("train.epoch=3", "unknown key 'train.epoch'; did you mean 'train.epochs'"),
    ],
)
def test_a_setting_of_another_form_is_refused(text, complaint):
    with pytest.raises(RecipeError, match=complaint):
        parse_setting(text)


ODD_TOML = {
    "deep": "[model]\noptions = " + "[" * 5000 + "]" * 5000,
    "less deep": "[model]\noptions = {a = " + "[" * 300 + "]" * 300 + "}",
    "deep tables": "[model.options." + ".".join("a" * 3000) + "]\nb = 1",
    "5,000 digits": "[train]\nepochs = " + "9" * 5000,
    "400 digits": "[train]\nepochs = " + "9" * 400,
    "400 digits for a number": "[optimiser]\nlr = " + "9" * 400,
    "400 digits for a share": "[train]\nema = " + "9" * 400,
}


@pytest.mark.parametrize("text", ODD_TOML.values(), ids=ODD_TOML)
def test_odd_toml_is_refused_in_a_sentence_in_a_recipe_and_in_a_run(tmp_path, text):
    path = tmp_path / "odd.toml"
    path.write_text(text)
    with pytest.raises(RecipeError) as error:
        load_recipe(path)
    assert len(str(error.value)) < 1000
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(TrainingError, match=r"config\.toml") as error:
        RunFolder(tmp_path).read_recipe()
    assert len(str(error.value)) < 1500
