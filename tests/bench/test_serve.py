from explain.small import saved, small_network

from paircaps.bench.serve import as_markdown, bench_serve


def test_every_question_is_timed(tmp_path):
    for name in ("fm", "dynamic"):
        saved(tmp_path / name, small_network(name))
    saved(tmp_path / "mute", small_network(decoder="none"))
    result = bench_serve([tmp_path], repeats=2)
    names = [row["case"] for row in result["rows"]]
    assert names == [
        "a stroke, fm",
        "a slider, fm",
        "a stroke, dynamic",
        "a slider, dynamic",
        "a stroke, mute",
        "a stroke, fm and all 2 others",
    ]
    for row in result["rows"]:
        assert 0 < row["median"] <= row["worst"]
        assert row["repeats"] == 2
    text = as_markdown(result)
    assert "| a stroke, fm |" in text
    assert "at most" in text
    assert "2 interleaved repeats" in text
