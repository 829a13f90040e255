"""Machine code of Triton's kernels for cards that are not there, and bytes and times on paper."""

import pytest

from paircaps.bench import triton
from paircaps.bench.layer_shapes import CAPSNET_LAYER, LayerShape
from paircaps.errors import MissingExtraError, RecipeError

MATRIX = LayerShape(64, 32, 16, 16, "matrix", "pose")
LARGE = LayerShape(64, 32, 64, 64, "matrix", "vote")
COORDINATES = LayerShape(256, 10, 16, 16, "vector", "pose", 4)


@pytest.fixture
def compiling(monkeypatch):
    pytest.importorskip("triton", reason="triton is for Linux")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.mark.parametrize("capability", triton.CAPABILITIES)
@pytest.mark.parametrize("kernel", [triton.SUMS, triton.GRADIENTS])
@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("shape", [CAPSNET_LAYER, MATRIX, COORDINATES, LARGE], ids=str)
def test_no_register_is_spilled(compiling, shape, everything, kernel, capability):
    arguments = triton.meta_arguments(shape, 128)
    if shape is COORDINATES:
        arguments = arguments._replace(unscaled=2)
    code = triton.compile_kernel(kernel, triton.with_everything(arguments) if everything else arguments, capability)
    assert code.stack == 0
    assert 0 < code.registers <= 255
    assert code.shared <= 8192  # a dozen programs share the 164 kB of an A100


def test_bytes_and_operations_of_the_capsnet_layer():
    arguments = triton.meta_arguments(CAPSNET_LAYER, 128)
    u, weight, votes = 4 * 128 * 2048 * 8, 4 * 2048 * 10 * 8 * 16, 128 * 2048 * 10 * 16
    forward, backward = triton.sums_work(arguments), triton.gradients_work(arguments)
    assert forward.operations == votes * (2 * 8 + 6)
    assert backward.operations == votes * (3 * 2 * 8 + 10)
    assert forward.launch_bytes >= u + weight
    assert backward.launch_bytes >= 2 * (u + weight)
    assert forward.launch_bytes + forward.other_bytes < 4 * votes / 2
    for work, dense in zip((forward, backward), triton.dense_bytes(CAPSNET_LAYER, 128), strict=True):
        assert dense > 5 * 4 * votes
        assert work.seconds >= work.operations / triton.SPEED
        assert 10 * work.seconds < dense / triton.BANDWIDTH


def test_bench_triton(compiling, monkeypatch):
    monkeypatch.setattr(triton, "registered_shapes", lambda: {CAPSNET_LAYER: ["capsnet"], MATRIX: ["one", "two"]})
    monkeypatch.setattr(triton, "CAPABILITIES", (80,))
    lines = []
    result = triton.bench_triton(lines.append)
    assert lines == ["machine code for capsnet", "machine code for one, two"]
    assert len(result["code"]) == 2 * 2 * 2
    assert [row["layer"] for row in result["predicted"]] == [str(CAPSNET_LAYER)]
    text = triton.as_markdown(result)
    assert "`paircaps bench triton`" in text
    assert "**Predicted, not measured**" in text
    assert "| one, two | backward | everything | 8.0 | " in text
    assert f"| {CAPSNET_LAYER} | 167.8 MB | forward | " in text


def test_without_triton_or_in_its_interpreter_it_refuses(monkeypatch):
    monkeypatch.setattr(triton.importlib.util, "find_spec", lambda _: "there")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(RecipeError, match="TRITON_INTERPRET=1 makes Triton interpret its kernels: unset it"):
        triton.bench_triton()
    monkeypatch.setattr(triton.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match="needs triton, which is not installed: pip install triton"):
        triton.bench_triton()
