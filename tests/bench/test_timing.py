import time

from paircaps.bench.timing import LEAST_REPEATS, MOST_REPEATS, interleaved, ratio, repeats_within, summary


def test_cases_take_turns_and_warm_up_is_left_out():
    calls = []
    cases = {"slow": lambda: calls.append("slow") or time.sleep(0.02), "fast": lambda: calls.append("fast")}
    timings = interleaved(cases, repeats=3, warm_up=1)
    assert calls == ["slow", "fast", "fast", "slow"] * 2  # each round begins with another
    assert timings["slow"].repeats == 3
    assert timings["slow"].low <= timings["slow"].median <= timings["slow"].high
    assert timings["slow"].median >= 0.02 > timings["fast"].median


def test_one_repeat_is_its_own_median():
    timing = interleaved({"a": lambda: None}, repeats=1)["a"]
    assert timing.low == timing.median == timing.high


def test_ratios_are_taken_round_by_round():
    found = ratio(summary([1.0, 2.0, 30.0]), summary([2.0, 4.0, 60.0]))
    assert found.low == found.median == found.high == 0.5


def test_as_many_repeats_as_fit_within_bounds():
    assert repeats_within({"a": lambda: None}, 1.0) == MOST_REPEATS
    assert repeats_within({"a": lambda: time.sleep(0.01)}, 0.01) == LEAST_REPEATS
