import pytest

from paircaps import CapsuleLayer
from paircaps.bench import layer, plots, scaling, table1
from paircaps.bench.goals import Goal, goals_as_markdown
from paircaps.bench.layer_shapes import CAPSNET_LAYER, LayerShape, capsule_models, registered_shapes, shape_of_layer
from paircaps.bench.peak_memory import PeakMemory
from paircaps.bench.timing import summary
from paircaps.paper.inference_times import paper_times

SMALL = LayerShape(20, 3, 8, 16, "vector", None)
PNG = b"\x89PNG"


def test_the_layers_of_every_model_are_measured():
    shapes = registered_shapes()
    assert shapes[CAPSNET_LAYER] == ["capsnet", "hitnet"]
    assert shapes[LayerShape(64, 32, 16, 16, "matrix", "pose")] == ["resnet-caps"]
    assert {name for models in shapes.values() for name in models} == set(capsule_models())
    assert not [name for name in capsule_models() if "pool" in name]


def test_a_shape_of_a_layer_builds_that_layer():
    made = SMALL.layer("dynamic", False, iterations=2)
    assert made.votes.weight.shape == (20, 3, 8, 16)
    assert made.routing.iterations == 2
    assert SMALL.votes_bytes(5) == 4 * 5 * 20 * 3 * 16
    assert SMALL.layout(5).product_flops == 2 * 5 * 20 * 3 * 8 * 16
    shared = LayerShape(20, 3, 8, 16, "vector", None, kinds=1)
    assert shape_of_layer(CapsuleLayer(20, 3, 16, 8, transform="vector", vote_norm=None, share="all")) == shared
    assert shared.layer().votes.weight.shape == (1, 3, 8, 16)
    assert LayerShape(6, 3, 16, 16, "matrix", "pose").layout(5).product_flops == 2 * 5 * 6 * 3 * 16 * 4


def test_bench_layer(monkeypatch):
    monkeypatch.setattr(layer, "MANY_CLASSES", LayerShape(4, 30, 16, 16, "matrix", "pose"))
    monkeypatch.setattr(layer, "CAPSNET_LAYER", LayerShape(30, 3, 8, 16, "vector", None))
    result = layer.bench_layer(0.01, 4, {SMALL: ["a model"]}, ["resnet-caps-small"])
    (shape,), (share,) = result["shapes"], result["shares"]
    assert [row["case"] for row in shape["rows"]] == list(layer.CASES)
    for row in shape["rows"]:
        assert 0 < row["forward"]["low"] <= row["forward"]["median"] <= row["forward"]["high"]
        assert row["extra_bytes"]["training"] is None or row["extra_bytes"]["training"] >= 0
        assert row["speed"]["forward"]["gflops"] == pytest.approx(
            SMALL.layout(4).product_flops / row["forward"]["median"] * 1e-6
        )
        assert row["speed"]["training"]["gflops"] == pytest.approx(
            3 * SMALL.layout(4).product_flops / row["training"]["median"] * 1e-6
        )
    assert set(shape["ratios"]) >= {"forward, FM, plain", "training, dynamic(3), kernel"}
    assert 0 < share["share"]["median"] < 1
    operators = {row["operator"] for row in shape["profile"]["training"]}
    assert "aten::bmm" in operators
    assert sum(row["share"] for row in shape["profile"]["training"]) == pytest.approx(1)
    assert result["goals"] == []  # they speak of CapsNet's layer and 128 images
    text = layer.as_markdown(result)
    assert "## 20×8 → 3×16 vector, no norm" in text
    assert "Of a model." in text
    assert "| resnet-caps-small |" in text
    assert "| FM, tiles |" in text.split("busy processes")[1]
    assert set(result["classes"]["ratios"]) >= {"forward, FM, tiles", "training, dynamic(3), kernel"}
    assert plots.draw_layer(result).startswith(PNG)


def test_bench_table1():
    result = table1.bench_table1(0.01, 2, paper=paper_times())
    assert [(table["model"], table["data"]) for table in result["tables"]] == [
        ("CapsNet light", "CIFAR10"),
        ("CapsNet light", "Fashion-MNIST"),
        ("CapsNet", "CIFAR10"),
        ("CapsNet", "Fashion-MNIST"),
    ]
    for table in result["tables"]:
        rows = {row["case"]: row for row in table["rows"]}
        assert set(rows) == {"floor", *table1.ROUTINGS}
        assert rows["floor"]["over_floor"] == rows["dynamic(3)"]["over_dynamic"] == 1
    assert result["tables"][0]["rows"][1]["paper"] == 218.26
    assert result["goals"] == []  # they speak of 128 images
    assert len(table1._goals(result["tables"])) == 4
    text = table1.as_markdown(result)
    assert "| 274.58 |" in text
    assert plots.draw_table1(result).startswith(PNG)


def test_bench_scaling(monkeypatch):
    monkeypatch.setattr(scaling, "CLASSES", (10,))
    monkeypatch.setattr(scaling, "FEWER_CHILDREN", 16)
    result = scaling.bench_scaling(0.01, 2, 64)
    (children,), (classes,) = result["children"], result["classes"]
    assert (children["children"], classes["children"]) == (64, 16)
    assert set(children["cases"]) == {"plain", "tiles", "kernel"}
    monkeypatch.setattr(scaling, "available_memory", lambda: 1000)
    cramped = scaling.bench_scaling(0.01, 2, 64)
    assert set(cramped["children"][0]["cases"]) == {"tiles", "kernel"}
    assert "| 64 | 82 kB | does not fit |" in scaling.as_markdown(cramped)
    for found in (result, cramped):
        assert plots.draw_scaling(found).startswith(PNG)
    # layers this small may need no extra memory at all: their panel stays empty, and a legend of nothing is a warning
    monkeypatch.setattr(scaling, "_extra_bytes", lambda *_: 0)
    assert plots.draw_scaling(scaling.bench_scaling(0.01, 2, 64)).startswith(PNG)


def test_ratios_and_goals_are_ours_over_theirs(monkeypatch):
    timings = {f"{case} {kind}": summary([2.0] * 3) for case in layer.CASES for kind in ("forward", "training")}
    timings["matrix product"] = summary([2.0] * 3)
    timings |= {f"{layer.OURS} {kind}": summary([0.5] * 3) for kind in ("forward", "training")}
    ratios = layer._ratios(timings)
    assert {value.median for value in ratios.values()} == {0.25}
    spread = {name: {"median": value.median} for name, value in ratios.items()}
    own = 2 * 2048**3 / CAPSNET_LAYER.layout(128).product_flops
    found = [goal.found for goal in layer._time_goals(spread, 128)]
    assert found == pytest.approx([0.25, 0.25, 0.25 * own, 0.25 * own / 3, 0.25, 0.25, 0.25])
    rows = [{"case": case, "extra_bytes": {"training": 1000}} for case in layer.CASES]
    rows[0]["extra_bytes"]["training"] = 10
    monkeypatch.setattr(layer, "measure_peaks", lambda jobs: [PeakMemory(11, 0)])
    assert [goal.found for goal in layer._memory_goals(rows, 128)] == [0.01, 0.01, 1.1]


def test_goals_are_met_or_not():
    lines = goals_as_markdown([Goal("a", 1 / 8, 0.1), Goal("b", 1 / 8, 0.2), Goal("c", 1.15, 1.15)])
    assert lines[2:] == ["| a | 1/8 | 1/10 | met |", "| b | 1/8 | 1/5 | **not met** |", "| c | 1.15 | 1.15 | met |"]
