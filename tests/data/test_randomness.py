import pytest
import torch

from paircaps.data.randomness import permutation, uniform


def test_a_number_depends_on_seed_epoch_index_purpose_and_draw_and_on_nothing_else():
    index = torch.tensor([5, 900, 3])
    whole = uniform(7, 2, index, 4, "augment")
    for row, one in enumerate(index):
        assert torch.equal(uniform(7, 2, one[None], 4, "augment")[0], whole[row])
    assert torch.equal(uniform(7, 2, index, 2, "augment"), whole[:, :2])
    for other in (
        uniform(8, 2, index, 4, "augment"),
        uniform(7, 3, index, 4, "augment"),
        uniform(7, 2, index + 1, 4, "augment"),
        uniform(7, 2, index, 4, "order"),
    ):
        assert not (other == whole).any()


def test_the_numbers_stay_what_they_were():
    """Runs are repeated by seed years later: these two values must never change."""
    assert uniform(0, 0, torch.tensor([0]), 1, "augment").item() == 0.21066935183381064
    assert permutation(1, 2, 8).tolist() == [2, 4, 6, 3, 1, 7, 5, 0]


def test_numbers_are_uniform_and_independent():
    draws = uniform(0, 0, torch.arange(100_000), 3, "augment")
    assert draws.min() >= 0
    assert draws.max() < 1
    bins = torch.stack([torch.histc(column.float(), 20, 0, 1) for column in draws.T])
    assert ((bins - 5000).square() / 5000).sum(1).max() < 43  # χ² with 19 degrees: 0.1 %
    assert (torch.corrcoef(draws.T) - torch.eye(3)).abs().max() < 0.015
    neighbours = torch.corrcoef(torch.stack([draws[:-1, 0], draws[1:, 0]]))
    assert neighbours[0, 1].abs() < 0.015
    seeds = torch.stack([uniform(seed, 0, torch.arange(1000), 1, "augment")[:, 0] for seed in range(50)])
    assert (torch.corrcoef(seeds) - torch.eye(50)).abs().max() < 0.15


def test_a_permutation_has_every_index_once_and_mixes_them():
    order = permutation(0, 0, 10_000)
    assert torch.equal(order.sort().values, torch.arange(10_000))
    assert (order == torch.arange(10_000)).sum() < 10
    assert not torch.equal(order, permutation(0, 1, 10_000))
    firsts = torch.tensor([permutation(seed, 0, 4)[0] for seed in range(4000)])
    assert (torch.bincount(firsts) - 1000).abs().max() < 120


@pytest.mark.parametrize("bad", [1.5, "0", None, True])
def test_seeds_are_whole_numbers(bad):
    with pytest.raises(TypeError, match="seed must be a whole number"):
        uniform(bad, 0, torch.arange(2), 1, "augment")


def test_negative_and_huge_seeds_work():
    assert permutation(-1, 0, 5).tolist() == permutation(2**64 - 1, 0, 5).tolist()
