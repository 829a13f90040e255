import pytest

from paircaps._utils.summary import summarise


def test_mean_and_deviation():
    three = summarise([1.0, 2.0, 6.0])
    assert (three.mean, three.seeds) == (3.0, 3)
    assert three.deviation == pytest.approx(7**0.5), "with n − 1"
    assert three.error == pytest.approx((7 / 3) ** 0.5)
    assert str(three) == "3.00 ± 2.65"


def test_one_seed_has_no_deviation():
    one = summarise([4.0])
    assert (one.deviation, one.error, str(one)) == (None, None, "4.00")
