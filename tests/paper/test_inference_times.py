"""Table 1: milliseconds of a batch."""

from paircaps.bench import table1
from paircaps.paper.experiments import experiments
from paircaps.paper.inference_times import paper_times, time_inference
from paircaps.training.recipe import Model


def test_a_row_a_network():
    models = {"fm": Model("capsnet-light"), "one": Model("capsnet-light", "dynamic", {}, {"iterations": 1})}
    rows = time_inference(models, "fashion-mnist", 0.01)
    assert [row["variant"] for row in rows] == ["fm", "one"]
    for row in rows:
        assert 0 < row["low"] <= row["median"] <= row["high"]
        assert row["batch"] == 128


def test_the_bench_quotes_the_same_paper():
    times = paper_times()
    assert set(times) == set(table1.IMAGES)
    assert all(set(cases) <= set(table1.ROUTINGS) for cases in times.values())
    row = next(row for row in experiments()["table1"].rows if row.variant and row.variant.name == "dynamic")
    assert times["Fashion-MNIST"]["dynamic(3)"] == row.paper["fashion-mnist"].mean
