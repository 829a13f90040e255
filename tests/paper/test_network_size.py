"""Sizes of networks, without their data."""

import pytest

from paircaps.paper.experiments import experiments
from paircaps.paper.network_size import count_multiplications, known_multiplications, noise_images, parameters_of
from paircaps.paper.plan import Choice, candidate_data, run_recipe
from paircaps.training.recipes import load_recipe

TRAINED = [experiment for experiment in experiments().values() if experiment.kind != "times"]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("table2-fashion-mnist", (903_472, 0)),
        ("table2-cifar10", (903_760, 0)),
        ("table3", (195_376, 186_145)),
        ("table5", (292_592, 163_041)),
        ("table6", (196_720, 0)),
        ("fig4-cifar10", (1_002_816, 0)),
    ],
)
def test_the_paper_s_numbers_of_parameters(name, sizes):
    assert parameters_of(load_recipe(name)) == sizes


def test_noise_has_the_shape_of_the_images():
    assert noise_images(load_recipe("table6"), 3).shape == (1, 32, 32), "the crop"
    stereo = load_recipe("table6", {"data": {"options": {"stereo": "channels"}}})
    assert noise_images(stereo, 3).shape == (2, 32, 32)
    assert noise_images(load_recipe("table5"), 3).batch([0]).extras["originals"].shape == (1, 2, 1, 36, 36)


def test_multiplications_by_hand():
    # 9×9 convolutions 1→256 on 20×20 places and 256→256 on 6×6, then votes: 1152 children × 10 parents × 8×16 weights
    recipe = load_recipe("fig4-fashion-mnist", {"model": {"name": "capsnet"}})
    assert count_multiplications(recipe) == 81 * 256 * 20**2 + 81 * 256**2 * 6**2 + 1152 * 10 * 8 * 16


@pytest.mark.parametrize("experiment", TRAINED, ids=[experiment.name for experiment in TRAINED])
def test_the_file_has_the_multiplications_of_every_network(experiment):
    counts = {}
    for study in experiment.studies:
        for study_data in candidate_data(study):  # a stand-in has images of the same shape
            for variant in experiment.variants:
                recipe = run_recipe(experiment, study_data, variant, 0, Choice())
                counts.setdefault(study.recipe, {}).setdefault(variant.name, set()).add(count_multiplications(recipe))
    known = {name: {key: {count} for key, count in known_multiplications()[name].items()} for name in counts}
    assert counts == known, "write them into multiplications.toml"
