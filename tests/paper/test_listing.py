"""What each experiment needs."""

import pytest

from paircaps.paper import listing
from paircaps.paper.experiments import find_experiments
from paircaps.paper.time_estimate import Pace


@pytest.mark.usefixtures("no_data")
def test_data_budget_and_time(monkeypatch):
    monkeypatch.setattr(listing, "pace_of", lambda recipe: Pace(1700.0, 100.0))
    text = listing.listed(find_experiments(["table3", "table6", "table1", "table2-small"]))
    assert "affnist: affine-glyphs, which is here, stands in for it" in text
    assert "the paper's budget: 40,000 steps, 3 seeds; all 4 networks here: about 6 hours" in text
    assert "smallnorb: smallnorb is not here (paircaps data get smallnorb)" in text
    assert "120 epochs, 3 seeds; all 8 networks here: about 12 hours" in text
    assert "fashion-mnist: needs no images" in text
    assert "(section 4.4)" in text
    assert "in place of eight: accuracy in percent (not in the paper; after Table 2)" in text
    assert "Table 2's budget: 163 epochs" in text
