"""Splits in which every class gives its share."""

import random

import pytest

from paircaps.data.split import share_of_each_class


def hashes(count, seed=0):
    chance = random.Random(seed)
    return [chance.random() for _ in range(count)]


@pytest.mark.parametrize(
    ("pictures", "share", "expected"),
    [(1, 0.2, 0), (2, 0.2, 1), (2, 0.9, 1), (7, 0.2, 1), (8, 0.2, 2), (60, 0.2, 12), (60, 0.001, 1), (60, 0.999, 59)],
)
def test_a_class_gives_its_share_rounded_but_not_all_and_not_none(pictures, share, expected):
    labels = [0] * pictures + [1] * 40
    chosen = share_of_each_class(labels, hashes(len(labels)), share)
    assert sum(chosen[:pictures]) == expected


def test_a_picture_that_is_added_moves_one_other_at_most():
    labels, contents = [number % 3 for number in range(90)], hashes(90)
    before = share_of_each_class(labels, contents, 0.2)
    for seed in range(20):
        after = share_of_each_class([*labels, 1], [*contents, random.Random(seed).random()], 0.2)
        assert sum(one != other for one, other in zip(before, after, strict=False)) <= 1


def test_copies_stay_together_also_across_classes():
    labels = [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]
    contents = [0.1, 0.1, 0.2, 0.3, 0.4, 0.9, 0.9, 0.1, 0.2, 0.8]
    for share in (0.2, 0.4, 0.6):
        chosen = share_of_each_class(labels, contents, share)
        sides = {
            content: {test for other, test in zip(contents, chosen, strict=True) if other == content}
            for content in contents
        }
        assert all(len(side) == 1 for side in sides.values())
        assert all(0 < sum(chosen[part]) < 5 for part in (slice(5), slice(5, 10)))


def test_many_copies_of_one_picture_do_not_fill_the_smaller_side():
    assert share_of_each_class([0] * 6, [0.1] * 5 + [0.2], 0.2) == [False] * 5 + [True]
    assert share_of_each_class([0, 0], [0.1, 0.1], 0.5) == [False, False]
