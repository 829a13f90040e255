"""One place chooses the path, and nothing that a layer gives depends on which it is."""

import ast
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from votes.kernels.cases import Case
from votes.twins import FORMS, everything, twins

import paircaps
from paircaps import CapsuleLayer, ConvCapsuleLayer
from paircaps.votes.kernels import choice, native

SOURCE = Path(paircaps.__file__).parent

pytestmark = pytest.mark.usefixtures("kernel")


@pytest.fixture
def seen(monkeypatch):
    """Calls of the C kernel, by what they compute."""
    calls = []

    def spy(what, function):
        def call(*arguments):
            calls.append(what)
            return function(*arguments)

        return call

    for paths in (choice.PATHS, choice.COUPLED):
        watched = paths["c"]._replace(
            sums=spy("sums", paths["c"].sums), gradients=spy("gradients", paths["c"].gradients)
        )
        monkeypatch.setitem(paths, "c", watched)
    return calls


# --- the choice -------------------------------------------------------------------------------------------------------


def test_the_path_is_chosen_in_one_place():
    """Whoever else imports a path goes round the choice; benchmarks compare tiles of several sizes."""
    paths = {"native_sums", "native_gradients", "native_coupled_sums", "native_coupled_gradients"}
    paths |= {"tiled_sums", "tiled_gradients"}
    importers = set()
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and paths & {alias.name for alias in node.names}:
                importers.add(file.relative_to(SOURCE).as_posix())
    assert {name for name in importers if not name.startswith("bench/")} == {"votes/kernels/choice.py"}


def test_the_first_path_that_can_take_the_arguments_does(monkeypatch):
    arguments = Case(2, 5, 3, 2, 2, 2).arguments()
    assert choice.path_of(arguments) == "c"
    assert choice.path_of(Case(2, 5, 3, 2, 2, 2).arguments(torch.float64)) == "tiles"
    monkeypatch.setenv("PAIRCAPS_KERNEL", "off")
    assert choice.path_of(arguments) == "tiles"
    assert choice.coupled_path(arguments) is None


def test_the_last_path_takes_any_arguments():
    assert list(choice.PATHS)[-1] == "tiles"
    assert choice.PATHS["tiles"].refusal(Case(0, 1, 1, 1, 1, 1).arguments(torch.float64)) is None


def test_only_one_path_is_taken_while_it_is_asked_for(monkeypatch):
    arguments = Case(2, 5, 3, 2, 2, 2).arguments()
    with choice.only("tiles"):
        assert choice.path_of(arguments) == "tiles"
        assert choice.coupled_path(arguments) is None
        with choice.only("c"):
            assert choice.path_of(arguments) == "c"
            assert choice.path_of(Case(2, 5, 3, 2, 2, 2).arguments(torch.float64)) == "tiles"  # which it refuses
        assert choice.path_of(arguments) == "tiles"
    assert choice.path_of(arguments) == "c"
    with pytest.raises(RuntimeError, match="in the middle"), choice.only("tiles"):
        raise RuntimeError("in the middle")
    assert choice.path_of(arguments) == "c"


def test_a_path_that_is_not_there_is_refused_in_words():
    with pytest.raises(ValueError, match=r"path must be one of .*'tiles'.*, got 'fast'"), choice.only("fast"):
        pass


def test_logs_name_the_path(monkeypatch):
    level = native.instructions()
    assert choice.path_on("cpu") == f"c ({level})"
    assert f"c used (compiled for {level}" in choice.describe_kernels()
    with choice.only("tiles"):
        assert choice.path_on("cpu") == "tiles"
    monkeypatch.setenv("PAIRCAPS_KERNEL", "off")
    assert choice.path_on("cpu") == "tiles"
    assert "c not used (PAIRCAPS_KERNEL is off" in choice.describe_kernels()


# --- layers -----------------------------------------------------------------------------------------------------------

ROUTINGS = {
    "fm": {"routing": "fm"},
    "long votes": {"routing": "fm", "routing_options": {"normalize": False}},
    "soft, weighed": {
        "routing": "fm",
        "routing_options": {"softness": 0.5, "learn_softness": True, "weigh": "activation"},
    },
    "dynamic": {"routing": "dynamic"},
}


def by_path(path, forward, layer, u):
    with choice.only(path):
        return everything(forward, u, layer)


def require_close(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        size = value.abs().max().item()
        torch.testing.assert_close(
            found[name], value, rtol=1e-3, atol=1e-4 * size, msg=lambda text, n=name: f"{n} {text}"
        )


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize(("transform", "vote_norm"), FORMS)
def test_a_layer_gives_the_same_on_every_path(transform, vote_norm, routing, seen):
    found = []
    for path in ("c", "tiles"):
        torch.manual_seed(0)
        layer = CapsuleLayer(40, 5, transform=transform, vote_norm=vote_norm, streaming=True, **ROUTINGS[routing])
        u, x = 1 + torch.randn(21, 40, 16), torch.rand(21, 40)
        found.append(by_path(path, lambda u, layer=layer, x=x: layer(u, x), layer, u))
    assert seen.count("sums") >= 1
    assert set(seen) == {"sums", "gradients"}
    require_close(*found)


@pytest.mark.parametrize("vote_norm", ["pose", "vote", None])
@pytest.mark.parametrize("kind", ["shared", "coordinates", "windows"])
def test_a_grid_gives_the_same_on_every_path(kind, vote_norm, seen):
    options = {"vote_norm": vote_norm, "streaming": True}
    found = []
    for path in ("c", "tiles"):
        torch.manual_seed(0)
        if kind == "windows":
            layer = ConvCapsuleLayer(3, 5, 3, 2, 1, **options)
        else:
            more = {"coordinates": "add"} if kind == "coordinates" else {}
            layer = CapsuleLayer((4, 5, 3), 5, share="position", **more, **options)
        height, width = (6, 7) if kind == "windows" else (4, 5)
        found.append(by_path(path, layer, layer, 1 + torch.randn(9, height, width, 3, 16)))
    assert set(seen) == {"sums", "gradients"}
    require_close(*found)


@pytest.mark.parametrize("vote_norm", ["pose", "vote", None])
def test_autocast_gives_the_same_on_every_path(vote_norm, seen):
    found = []
    for path in ("c", "tiles"):
        torch.manual_seed(0)
        layer, _ = twins("matrix", vote_norm)
        u = (3 + torch.randn(16, 97, 16)).bfloat16()
        with torch.autocast("cpu", torch.bfloat16):
            found.append(by_path(path, layer, layer, u))
    assert "gradients" in seen
    assert found[0]["s"].dtype == found[1]["s"].dtype
    for name, value in found[1].items():
        torch.testing.assert_close(found[0][name], value, rtol=1e-2, atol=1e-2 * value.abs().max().item())


# --- what people do with layers ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("fresh_compiler")
def test_torch_compile_calls_the_kernel(seen):
    fast, plain = twins("matrix", "pose")
    compiled = torch.compile(fast, fullgraph=True, backend="aot_eager", dynamic=True)
    for batch in (8, 21):
        u = torch.randn(batch, 97, 16)
        found, expected = everything(compiled, u, fast), everything(plain, u)
        require_close(found, expected)
    assert seen == ["sums", "gradients"] * 2


def test_torch_export_runs_without_the_kernel(seen):
    """What is exported must run where this library is not, so its votes are dense."""
    layer = CapsuleLayer(97, 7, streaming=True).eval()
    u = torch.randn(9, 97, 16)
    expected = layer(u)
    assert seen == ["sums"]
    exported = torch.export.export(layer, (u,))
    assert "paircaps" not in str(exported.graph)
    for one, other in zip(exported.module()(u), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    assert seen == ["sums"]


def test_gradients_of_single_images_by_vmap(seen):
    fast, plain = (layer.eval() for layer in twins("matrix", "pose"))
    u = torch.randn(3, 97, 16)

    def per_image(layer):
        def loss(weights, u):
            return torch.func.functional_call(layer, weights, (u,)).activation.square().sum()

        return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(dict(layer.named_parameters()), u)

    require_close(per_image(fast), per_image(plain))
    assert seen == ["sums", "gradients"] * 3 or seen == ["sums"] * 3 + ["gradients"] * 3


def test_torch_func_grad_and_vjp(seen):
    fast, plain = (layer.eval() for layer in twins("vector", "vote"))
    u = torch.randn(5, 97, 16)
    gradients = [
        torch.func.grad(lambda u, layer=layer: layer(u).activation.square().sum())(u) for layer in (fast, plain)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4 * gradients[1].abs().max().item())
    pulled = [
        torch.func.vjp(lambda u, layer=layer: layer(u).s, u)[1](torch.ones(5, 7, 16))[0] for layer in (fast, plain)
    ]
    torch.testing.assert_close(*pulled, rtol=1e-3, atol=1e-4 * pulled[1].abs().max().item())
    assert seen == ["sums", "gradients"] * 2


def test_shapes_alone_need_no_kernel(seen):
    layer = CapsuleLayer(97, 7, streaming=True).to("meta")
    assert layer(torch.randn(9, 97, 16, device="meta")).s.shape == (9, 7, 16)
    assert seen == []


@pytest.mark.parametrize("routing", ["fm", "dynamic"])
def test_threads_that_run_layers_at_once_do_not_disturb_each_other(routing, monkeypatch):
    """The kernel lets other threads of Python run, and has no state of its own."""
    monkeypatch.setattr(native, "FLOPS_PER_THREAD", 1)
    layer = CapsuleLayer(97, 7, streaming=True, routing=routing).eval()
    inputs = [torch.randn(size, 97, 16) for size in (5, 20, 40, 60)]
    expected = [everything(layer, u) for u in inputs]
    found = {}

    def run(number):
        for _ in range(3):
            found[number] = everything(layer, inputs[number])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(inputs))]
    with ExitStack() as stack:
        for thread in threads:
            thread.start()
            stack.callback(thread.join)
    for number, values in enumerate(expected):
        for name, value in values.items():
            assert torch.equal(found[number][name], value), name
