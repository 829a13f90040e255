"""Every registered model: its size, its result, and that PyTorch's own tools work on it."""

import copy
import io
import itertools
from functools import partial

import pytest
import torch
from reference.sized import sized_routing

import paircaps
from paircaps import DynamicRouting, ResNetCapsules, ResNetPool, count_parameters, create_model, list_models
from paircaps.errors import PaircapsError
from paircaps.model_files import read_metadata, save_model
from paircaps.models import is_pooling_twin, pooling_twin, published_routing, register_model, registry
from paircaps.network import Network, NetworkSpec, Preparation

NORB = {"num_classes": 5, "image_size": 32, "vote_norm": "vote", "primary_norm": "capsule"}
CAPSULE_MODELS = [name for name in list_models() if not is_pooling_twin(name)]
POOLING_MODELS = [name for name in list_models() if is_pooling_twin(name)]

LAYERS_OF_THEIR_OWN = ("caps-segment", "deepcaps", "deepcaps-light", "em-capsnet", "em-capsnet-small")
"""Networks without hidden capsules; that the routing is injected in all their layers is tested in their own files."""

NARROWER = {
    name: {"filters": 6, "kinds": 2, "conv_kinds": (2, 3)} for name in list_models() if name.startswith("em-capsnet")
}
NARROWER |= {name: {"width": 8, "kinds": 3} for name in list_models() if name.startswith("deepcaps")}
"""Options of networks whose full width takes seconds, for tests that do not depend on it."""


def narrow(name, **arguments):
    return create_model(name, **NARROWER.get(name, {}), **arguments)


def images(count=3, channels=1, size=28):
    return torch.randn(count, channels, size, size)


def with_statistics(model):
    buffers = (buffer for name, buffer in model.named_buffers() if "num_batches" not in name)
    return count_parameters(model) + sum(buffer.numel() for buffer in buffers)


def test_the_names_of_the_paper_are_registered():
    assert set(list_models()) == {
        "aff-capsnet",
        "aff-capsnet-light",
        "aff-capsnet-pool",
        "aff-capsnet-pool-light",
        "caps-segment",
        "capsnet",
        "capsnet-light",
        "capsnet-pool",
        "capsnet-pool-light",
        "efficient-capsnet",
        "efficient-capsnet-norb",
        "efficient-capsnet-pool",
        "efficient-capsnet-pool-norb",
        "em-capsnet",
        "em-capsnet-pool",
        "em-capsnet-pool-small",
        "em-capsnet-small",
        "deepcaps",
        "deepcaps-light",
        "deepcaps-pool",
        "deepcaps-pool-light",
        "fast-caps",
        "fast-caps-tiny",
        "fast-pool",
        "fast-pool-tiny",
        "hitnet",
        "resnet-caps",
        "resnet-caps-fine",
        "resnet-caps-fine-medium",
        "resnet-caps-fine-small",
        "resnet-caps-grid",
        "resnet-caps-grid-medium",
        "resnet-caps-grid-small",
        "resnet-caps-medium",
        "resnet-caps-small",
        "resnet-pool",
        "resnet-pool-medium",
        "resnet-pool-small",
        "unet-twin",
    }


@pytest.mark.parametrize(
    ("name", "arguments", "trainable"),
    [
        ("resnet-caps", {"in_channels": 3, "image_size": 32}, 903_760),
        ("resnet-caps", {}, 903_472),
        ("resnet-caps-small", {"image_size": 40}, 195_376),
        ("resnet-caps-small", {"image_size": 40, "routing": "dynamic"}, 195_376),
        ("resnet-caps-small", {"image_size": 40, "routing": "em"}, 195_396),
        ("resnet-caps-small", NORB, 196_720),
        ("resnet-caps-small", {**NORB, "routing": "em"}, 196_730),
        ("resnet-caps-medium", {"image_size": 36}, 292_592),
        ("capsnet-light", {}, 705_728),
        ("capsnet-light", {"in_channels": 3, "image_size": 32}, 1_002_816),
    ],
)
def test_trainable_parameters_are_the_papers(name, arguments, trainable):
    assert count_parameters(create_model(name, **arguments)) == trainable


@pytest.mark.parametrize(
    ("name", "arguments", "total"),
    [
        ("resnet-caps", {"in_channels": 3, "image_size": 32}, 907_504),
        ("resnet-caps", {}, 907_216),
        ("resnet-caps-small", {"image_size": 40}, 195_920),
    ],
)
def test_parameters_with_statistics_are_the_papers(name, arguments, total):
    assert with_statistics(create_model(name, **arguments)) == total


def test_the_full_capsnet_has_the_original_widths():
    model = create_model("capsnet")
    assert isinstance(model, paircaps.CapsNet)
    assert model.conv.out_channels == 256
    assert (model.primary.groups, model.primary.pose_dim, model.primary.out_capsules) == (32, 8, 1152)
    assert count_parameters(model) == 6_804_224  # 8.2 million with the decoder, as Sabour et al. say


def test_aff_capsnet_has_one_matrix_for_each_class_and_no_routing():
    model = create_model("aff-capsnet-light", filters=4)
    (layer,) = model.layers
    assert layer.votes.weight.shape == (1, 10, 8, 16)
    assert isinstance(layer.routing, paircaps.routing.MeanOfVotes)
    children = model.primary(model.features(batch := images())).s.flatten(1, 3)
    mean = torch.einsum("bik,jkl->bjl", children, layer.votes.weight[0]) / model.primary.out_capsules
    torch.testing.assert_close(model(batch).pose, paircaps.functional.squash(mean), rtol=1e-4, atol=1e-6)
    assert model(images(size=33)).activation.shape == (3, 10)  # nothing depends on the number of children


def test_aff_capsnet_starts_with_votes_whose_mean_is_long_enough_to_learn_from():
    # with matrices as small as those of a whole layer, lengths began at 3e-5, and it learned nothing
    torch.manual_seed(0)
    activation = create_model("aff-capsnet-light", filters=16)(torch.rand(4, 1, 28, 28)).activation
    assert activation.mean() > 3e-3


def test_aff_capsnet_is_capsnet_without_the_matrices_of_each_primary_capsule():
    matrices = 10 * 8 * 16  # of one child for all classes
    for size, children in ((28, 6 * 6 * 32), (40, 12 * 12 * 32)):
        with torch.device("meta"):
            aff, own = (count_parameters(create_model(name, image_size=size)) for name in ("aff-capsnet", "capsnet"))
        assert own - aff == (children - 1) * matrices
        assert aff == 5_330_944  # 20,992 and 5,308,672 of the convolutions, 1,280 of the matrices


@pytest.mark.parametrize("ending", ["", "-medium", "-small"])
@pytest.mark.parametrize("arguments", [{}, {"in_channels": 3, "image_size": 32}, NORB, {"routing": "em"}], ids=str)
def test_the_pooling_baseline_is_as_large_as_its_twin(ending, arguments):
    capsules, pooling = (create_model(f"resnet-{kind}{ending}", **arguments) for kind in ("caps", "pool"))
    assert count_parameters(pooling) == pytest.approx(count_parameters(capsules), rel=0.005)


@pytest.mark.parametrize("prefix", ["", "aff-"])
@pytest.mark.parametrize("ending", ["", "-light"])
@pytest.mark.parametrize("arguments", [{}, {"in_channels": 3, "image_size": 32}, {"routing": "em"}], ids=str)
def test_the_pooling_baseline_of_capsnet_is_as_large_as_its_twin(prefix, ending, arguments):
    with torch.device("meta"):
        capsules, pooling = (create_model(f"{prefix}capsnet{kind}{ending}", **arguments) for kind in ("", "-pool"))
    assert count_parameters(pooling) == pytest.approx(count_parameters(capsules), rel=0.005)


@pytest.mark.parametrize("name", CAPSULE_MODELS)
def test_every_capsule_network_has_its_pooling_twin(name):
    assert pooling_twin(name) in POOLING_MODELS
    assert is_pooling_twin(pooling_twin(name))
    assert not is_pooling_twin(name)


@pytest.mark.parametrize(
    ("ending", "pool"), [("resnet-caps-small", "resnet-pool-small"), ("capsnet-light", "capsnet-pool-light")]
)
def test_a_twin_has_the_size_of_its_capsules(ending, pool):
    assert pooling_twin(ending) == pool


@pytest.mark.parametrize("name", POOLING_MODELS)
def test_a_model_without_a_pooling_twin_says_so(name):
    with pytest.raises(
        PaircapsError, match=f"model '{name}' has no pooling twin; these have one: .*caps-segment, capsnet, .*"
    ):
        pooling_twin(name)
    with pytest.raises(ValueError, match="unknown model 'resnet-cops'; did you mean 'resnet-caps'"):
        pooling_twin("resnet-cops")


@pytest.fixture
def a_registry_of_its_own(monkeypatch):
    for table in ("_POOLING_TWINS", "_ROUTINGS"):
        monkeypatch.setattr(registry, table, {**getattr(registry, table)})
    monkeypatch.setattr(registry._MODELS, "_factories", {**registry._MODELS._factories})


def test_a_model_of_ones_own_registers_its_twin(a_registry_of_its_own):
    register_model("my-capsnet", ResNetCapsules, pooling_twin="my-pool")
    with pytest.raises(ValueError, match="unknown model 'my-pool'"):
        pooling_twin("my-capsnet")
    register_model("my-pool", ResNetPool)
    assert pooling_twin("my-capsnet") == "my-pool"
    with pytest.raises(TypeError, match="pooling_twin must be the name of a model or None, got "):
        register_model("other", ResNetCapsules, pooling_twin=ResNetPool)


def test_a_model_has_the_routing_that_it_is_published_with(a_registry_of_its_own):
    register_model("my-capsnet", partial(ResNetCapsules, blocks=(1, 1, 1)), pooling_twin="my-pool", routing="em")
    register_model("my-pool", ResNetPool)
    for name in ("my-capsnet", "my-pool"):
        assert published_routing(name) == "em"
    given, asked = create_model("my-capsnet"), create_model("my-capsnet", routing="dynamic")
    assert isinstance(given.layers[0].routing, paircaps.EMRouting)
    assert isinstance(asked.layers[0].routing, DynamicRouting)
    assert isinstance(create_model("my-capsnet", routing=DynamicRouting).layers[0].routing, DynamicRouting)
    with pytest.raises(ValueError, match="unknown model 'my-capsnut'; did you mean 'my-capsnet'"):
        published_routing("my-capsnut")
    with pytest.raises(TypeError, match="name of the routing that a model is published with, got 'auto'"):
        register_model("other", ResNetCapsules, routing="auto")
    with pytest.raises(ValueError, match='no routing can be called "auto"'):
        paircaps.register_routing("auto", DynamicRouting)


def test_a_saved_network_names_the_routing_of_its_model(a_registry_of_its_own, tmp_path):
    register_model("my-capsnet", partial(ResNetCapsules, blocks=(1, 1, 1)), routing="dynamic")
    preparation = Preparation(size=(12, 12), crop=(12, 12))
    sizes = {"num_classes": 2, "image_size": 12}
    for arguments in (sizes, {**sizes, "routing": "auto"}):
        spec = NetworkSpec("my-capsnet", arguments, ("cat", "dog"), preparation)
        save_model(tmp_path, Network(spec), {})
        assert read_metadata(tmp_path)["arguments"] == {**sizes, "routing": "dynamic"}
        network = paircaps.load(tmp_path)
        assert network.spec.routing == "dynamic"
        assert isinstance(network.model.layers[0].routing, DynamicRouting)


def test_sizing_the_baseline_draws_no_random_number():
    # the twin is built only to be counted; a seed must give the same baseline as building it directly
    torch.manual_seed(3)
    sized = create_model("resnet-pool-small")
    torch.manual_seed(3)
    direct = ResNetPool(blocks=(1, 1, 1), head_width=sized.pose_dim)
    for one, other in zip(sized.parameters(), direct.parameters(), strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("name", list_models())
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 33, 25)], ids=str)
def test_a_model_returns_capsules_for_any_size_and_channels(name, shape):
    channels, *size = shape
    model = narrow(name, num_classes=4, in_channels=channels, image_size=tuple(size))
    capsules = model(torch.randn(2, *shape))
    assert isinstance(capsules, paircaps.Capsules)
    assert capsules.activation.shape == (2, 4)
    assert capsules.pose.shape == capsules.s.shape == (2, 4, model.pose_dim)


@pytest.mark.parametrize("name", list_models())
def test_every_parameter_gets_a_gradient(name):
    model = narrow(name)
    capsules = model(images())
    (capsules.activation.square().sum() + (capsules.pose * torch.randn_like(capsules.pose)).sum()).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.any(), parameter_name


@pytest.mark.parametrize("routing", paircaps.list_routings())
@pytest.mark.parametrize("name", [name for name in CAPSULE_MODELS if name not in LAYERS_OF_THEIR_OWN])
def test_the_routing_is_injected_in_every_layer(name, routing):
    model = create_model(name, routing=routing, hidden_capsules=(6,))
    wanted = type(sized_routing(routing, 1))
    assert [type(layer.routing) for layer in model.layers] == [wanted, wanted]
    assert model.layers[0].routing is not model.layers[1].routing
    assert model(images()).activation.shape == (3, 10)


def test_routing_options_and_factories_reach_the_layers():
    by_name = create_model("capsnet-light", routing="dynamic", routing_options={"iterations": 1})
    by_factory = create_model("capsnet-light", routing=partial(DynamicRouting, iterations=1))
    assert by_name.layers[0].routing.iterations == by_factory.layers[0].routing.iterations == 1


def test_the_baseline_has_its_features_as_pose_and_logits_as_activation():
    model = create_model("resnet-pool-small").eval()
    capsules = model(images())
    torch.testing.assert_close(capsules.pose[:, 0], capsules.pose[:, 9])
    torch.testing.assert_close(model.classify(capsules.pose[:, 0]), capsules.activation)


@pytest.mark.parametrize("name", list_models())
def test_copies_and_state_dicts_give_the_same_result(name):
    model = narrow(name)
    model(images())  # so that the running statistics are not those of a fresh model
    model.eval()
    other = narrow(name).eval()
    batch = images()
    assert not torch.allclose(other(batch).activation, model(batch).activation)
    other.load_state_dict(model.state_dict())
    for twin in (other, copy.deepcopy(model)):
        for one, two in zip(twin(batch), model(batch), strict=True):
            torch.testing.assert_close(one, two, rtol=0, atol=0)


@pytest.mark.parametrize("name", list_models())
def test_vmap_over_a_batch_is_the_batch(name):
    model = narrow(name).eval()
    batch = images()
    for one, other in zip(torch.func.vmap(model)(batch.unsqueeze(1)), model(batch), strict=True):
        torch.testing.assert_close(one.squeeze(1), other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "routing"),
    [
        *((name, "auto") for name in list_models()),
        # an export takes a second, so that routings are not combined with every model but with every kind of votes
        *itertools.product(["resnet-caps-small", "resnet-caps-fine-small", "caps-segment"], paircaps.list_routings()),
    ],
)
def test_export_with_a_dynamic_batch(name, routing):
    model = narrow(name, routing=routing).eval()
    batch = torch.export.Dim("batch", min=1, max=4096)
    program = torch.export.export(model, (images(),), dynamic_shapes=({0: batch},))
    for count in (1, 7):
        other = images(count)
        for one, two in zip(program.module()(other), model(other), strict=True):
            torch.testing.assert_close(one, two)


@pytest.mark.parametrize("name", ["resnet-caps-small", "resnet-pool-small"])
def test_an_exported_model_can_be_saved_and_loaded(name):
    # torch.export.save refuses a named tuple that it has not been told of
    model = narrow(name).eval()
    file = io.BytesIO()
    torch.export.save(torch.export.export(model, (images(),)), file)
    file.seek(0)
    batch = images()
    loaded = torch.export.load(file).module()(batch)
    assert isinstance(loaded, paircaps.Capsules)
    torch.testing.assert_close(loaded.activation, model(batch).activation)


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, "aot_eager") for name in list_models()),
        # machine code takes ten seconds a model, and is made from the same graphs: one of each kind of network
        *((name, "inductor") for name in ("caps-segment", "fast-caps-tiny", "resnet-caps-fine-small")),
    ],
)
@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_model_is_the_model(name, backend):
    model = narrow(name).eval()
    batch = images()
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, backend=backend)(batch)
        for one, other in zip(compiled, model(batch), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("routing", paircaps.list_routings())
@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_model_trains_like_the_model(routing):
    model = create_model("resnet-caps-small", routing=routing, image_size=16)
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    batch = images(8, size=16)
    for network in (compiled, twin):
        capsules = network(batch)
        (capsules.activation.square().sum() + capsules.pose.square().sum()).backward()
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-4)
    for one, other in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", list_models())
def test_bfloat16_and_autocast(name):
    model, batch = narrow(name), images(8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        capsules = model(batch)
    assert all(part.isfinite().all() for part in capsules)
    if name in CAPSULE_MODELS:
        assert {part.dtype for part in capsules} == {torch.float32}
    capsules.activation.float().square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)
    half = model.bfloat16()(batch.bfloat16())
    assert {part.dtype for part in half} == {torch.bfloat16}
    assert all(part.isfinite().all() for part in half)


def test_a_meta_model_costs_nothing():
    with torch.device("meta"):
        model = create_model("capsnet", image_size=512)
    assert all(parameter.is_meta for parameter in model.parameters())


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: create_model("resnet-cap"), ValueError, "unknown model 'resnet-cap'; did you mean 'resnet-caps'"),
        (lambda: create_model("resnet-caps-small", depth=3), TypeError, "no option 'depth'; it takes blocks, widths"),
        (lambda: create_model("capsnet", image_size=16), ValueError, "16×16 is too small for CapsNet.*17×17"),
        (lambda: create_model("capsnet", image_size=(28, 12)), ValueError, "28×12 is too small"),
        (lambda: create_model("resnet-caps-small", image_size=7), ValueError, "7×7 is too small.*8×8"),
        (lambda: create_model("resnet-pool-small", image_size=7), ValueError, "7×7 is too small.*8×8"),
        (lambda: create_model("resnet-caps-small", num_classes=0), ValueError, "num_classes .* at least 1, got 0"),
        (lambda: create_model("resnet-caps-small", pose_dim=10), ValueError, "square number, got 10"),
        (lambda: create_model("resnet-caps-small", routing="none"), ValueError, "unknown routing 'none'"),
        (lambda: create_model("resnet-pool-small", routing="none"), ValueError, "unknown routing 'none'"),
        (lambda: create_model("resnet-caps-small", blocks=(1, 1)), ValueError, r"blocks must be .* 3 .*\(1, 1\)"),
        (lambda: create_model("resnet-caps-small", blocks=(1, 0, 1)), ValueError, "blocks must be at least 1, got 0"),
        (lambda: create_model("resnet-caps-small", blocks=1), TypeError, "blocks must be a tuple of 3 .*got 1"),
        (lambda: create_model("resnet-pool-small", depth=3), TypeError, "no option 'depth'"),
        (lambda: create_model("resnet-caps-small", hidden_capsules=16), TypeError, "hidden_capsules .* got 16"),
        (lambda: create_model("resnet-caps-small", hidden_capsules=(-1,)), ValueError, "hidden_caps.* got -1"),
        (lambda: create_model("resnet-caps-small", primary_norm="vote"), ValueError, "primary_norm must be one of"),
        (lambda: create_model("capsnet", filters=0), ValueError, "filters must be at least 1, got 0"),
        (lambda: create_model("resnet-caps-small", image_size="28"), TypeError, "image_size .* '28'"),
        (lambda: create_model("resnet-caps-small", image_size=28.0), TypeError, r"image_size .* got 28\.0"),
        (lambda: create_model("resnet-caps-small", image_size=(28,)), TypeError, r"image_size .* got \(28,\)"),
        (lambda: create_model("FM"), ValueError, r"unknown model 'FM'\. Known: aff-capsnet"),
        (lambda: create_model(["capsnet"]), TypeError, "named by a string"),
        (lambda: create_model("resnet-caps-small", routing=3), TypeError, "named by a string, got 3"),
        (lambda: create_model("capsnet", routing=DynamicRouting(10)), TypeError, "a routing of its own"),
        (lambda: register_model("mine", None), TypeError, "a name and a callable, got 'mine' and None"),
        (lambda: create_model("resnet-caps-small")(images(size=32)), ValueError, r"1, 28, 28\).*\(3, 1, 32, 32\)"),
        (lambda: create_model("resnet-pool-small")(images(channels=3)), ValueError, r"1, 28, 28\).*\(3, 3, 28, 28\)"),
        (lambda: create_model("capsnet-light")(torch.randn(1, 28, 28)), ValueError, r"\(1, 28, 28\)"),
        (lambda: create_model("capsnet-light")(torch.ones(1, 1, 28, 28, dtype=torch.uint8)), TypeError, "uint8"),
        (lambda: create_model("capsnet-light")(images().double()), TypeError, "float64 and the model is torch.float32"),
        (lambda: register_model("capsnet", ResNetCapsules), ValueError, "'capsnet' is already registered"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_words_that_quote_it(call, error, words):
    with pytest.raises(error, match=words):
        call()
