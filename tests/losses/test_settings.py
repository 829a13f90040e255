import pytest

from paircaps.losses import Loss


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"name": "hinge"}, "unknown name 'hinge'. Known: auto, centripetal, cross-entropy, margin, mask, nll, spread"),
        ({"name": "sprad"}, "unknown name 'sprad'; did you mean 'spread'?"),
        ({"options": {"label_smoothing": 0.1}}, "options cannot hold 'label_smoothing', which is loss.label_smoothing"),
        ({"options": 3}, "options must be a table"),
        ({"label_smoothing": 2}, "label_smoothing must be from 0 to 1, got 2"),
        ({"decoder": "big"}, "decoder must be one of"),
        ({"decoder_weight": float("nan")}, "decoder_weight must be"),
    ],
)
def test_bad_values_are_refused(values, complaint):
    with pytest.raises(ValueError, match=complaint):
        Loss(**values)


def test_a_network_with_masks_has_their_loss_and_no_other():
    assert Loss().resolve(True, 2, has_masks=True) == "mask"
    assert Loss(name="mask").resolve(True, 1, has_masks=True) == "mask"
    with pytest.raises(ValueError, match="margin is for networks that classify"):
        Loss(name="margin").resolve(True, 2, has_masks=True)
    with pytest.raises(ValueError, match="mask is for networks that give masks"):
        Loss(name="mask").resolve(True, 2)


def test_auto_asks_masks_then_the_model_or_routing_then_the_activations():
    assert Loss().resolve(True, 1, has_masks=True, wanted="spread") == "mask"
    assert Loss().resolve(True, 1, wanted="spread") == "spread"
    assert Loss().resolve(True, 1) == "margin"
    assert Loss().resolve(False, 2) == "margin"
    assert Loss().resolve(False, 1) == "cross-entropy"
    assert Loss().resolve(False, 2, wanted="cross-entropy") == "margin"
    with pytest.raises(ValueError, match="unknown loss 'spred'; did you mean 'spread'"):
        Loss().resolve(False, 1, wanted="spred")


def test_options_of_the_section_reach_the_losses_that_take_them():
    assert Loss(label_smoothing=0.1).create("cross-entropy").label_smoothing == 0.1
    assert Loss(over_classes="mean").create("margin").over_classes == "mean"
    assert Loss(over_classes="mean", options={"margin_start": 0.3}).create("spread").margin_start == 0.3
