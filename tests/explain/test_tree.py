import pytest
import torch
from explain.small import small_network, some_images, stacked_network

from paircaps.explain import tree
from paircaps.explain.trace import trace


def test_the_strongest_children_of_each_capsule_are_in_the_tree():
    network = stacked_network()
    image = some_images(1)[0]
    found = tree(network, image, label=4, branches=2)
    traced = trace(network, image.unsqueeze(0))
    assert found.label == 4
    assert found.activation == pytest.approx(network(image.unsqueeze(0)).activation[0, 4].item())
    assert len(found.levels) == 4
    assert found.levels[0].capsules.tolist() == [4]
    for depth, level in enumerate(found.levels[1:], 1):
        evidence = traced.evidence[-depth].share[0]
        above = found.levels[depth - 1].capsules
        for column, parent in enumerate(above.tolist()):
            strongest = set(evidence[:, parent].abs().topk(2).indices.tolist())
            linked = {int(level.capsules[row]) for row in level.links[:, column].nonzero().flatten()}
            assert linked == strongest
            for row, child in enumerate(level.capsules.tolist()):
                if child in strongest:
                    assert level.links[row, column].item() == pytest.approx(evidence[child, parent].item())


def test_each_capsule_is_there_once_from_left_to_right():
    found = tree(stacked_network(), some_images(1)[0], branches=5)
    for level in found.levels:
        assert len(set(level.capsules.tolist())) == len(level.capsules)
        assert (level.places[:, 0].diff() >= 0).all()


@pytest.mark.parametrize(("build", "leaves"), [(small_network, 8), (stacked_network, 27)])
def test_few_layers_have_more_branches(build, leaves):
    found = tree(build(), some_images(1)[0])
    assert 0 < len(found.levels[-1].capsules) <= leaves
    if build is small_network:
        assert len(found.levels[-1].capsules) == leaves


def test_shares_of_the_leaves_are_those_of_the_trace():
    network, image = stacked_network("em"), some_images(1)[0]
    found = tree(network, image)
    shares = trace(network, image.unsqueeze(0)).shares(torch.tensor([found.label]))[0][0]
    torch.testing.assert_close(found.levels[-1].share, shares[found.levels[-1].capsules])


def test_wrong_arguments_are_refused_in_words():
    with pytest.raises(ValueError, match="a tree is of one image"):
        tree(small_network(), some_images(2))
    with pytest.raises(ValueError, match="branches"):
        tree(small_network(), some_images(1)[0], branches=0)
