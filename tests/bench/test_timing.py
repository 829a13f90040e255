import time

from paircaps.bench.timing import interleaved


def test_cases_take_turns_and_warm_up_is_left_out():
    calls = []
    cases = {"slow": lambda: calls.append("slow") or time.sleep(0.02), "fast": lambda: calls.append("fast")}
    timings = interleaved(cases, repeats=3, warm_up=1)
    assert calls == ["slow", "fast"] * 4
    assert timings["slow"].repeats == 3
    assert timings["slow"].low <= timings["slow"].median <= timings["slow"].high
    assert timings["slow"].median >= 0.02 > timings["fast"].median


def test_one_repeat_is_its_own_median():
    timing = interleaved({"a": lambda: None}, repeats=1)["a"]
    assert timing.low == timing.median == timing.high
