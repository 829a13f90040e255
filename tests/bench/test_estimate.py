"""Estimates hold: of memory within a quarter of what is measured, of operations and parameters exactly."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from paircaps import CapsuleLayer, create_model, list_routings
from paircaps.bench.estimate import as_text, estimate
from paircaps.bench.layer_shapes import CAPSNET_LAYER, LayerShape
from paircaps.bench.meta_memory import MetaMemory
from paircaps.bench.peak_memory import can_measure, layer_job, measure_peaks, model_job
from paircaps.votes.kernels.choice import only

CASES = [
    ("capsnet-light", "fm", 32, 3, 10, 64),
    ("capsnet-light", "dynamic", 28, 1, 10, 64),
    ("capsnet-light", "em", 28, 1, 10, 64),
    ("resnet-caps-small", "fm", 48, 1, 20, 64),
    ("resnet-caps-medium", "em", 32, 3, 10, 64),
    ("resnet-caps-grid-small", "fm", 48, 1, 20, 64),
    ("resnet-pool-small", "", 32, 3, 10, 64),
]


@pytest.mark.skipif(not can_measure(), reason="this system does not tell a process's peak")
def test_memory_is_within_a_quarter_of_what_is_measured():
    jobs, guesses = [], []
    for name, routing, size, channels, classes, batch in CASES:
        (row,) = estimate(name, size, classes, batch, channels, [routing] if routing else [])
        arguments = {"num_classes": classes, "in_channels": channels, "image_size": size, "routing": routing or "fm"}
        jobs += [model_job(name, arguments, batch, train=train) for train in (False, True)]
        guesses += [row.inference_bytes, row.training_bytes]
    for job, guess, peak in zip(jobs, guesses, measure_peaks(jobs), strict=True):
        measured = peak.extra + peak.held
        assert abs(guess / measured - 1) < 0.25, (job, guess, measured)


@pytest.mark.skipif(not can_measure(), reason="this system does not tell a process's peak")
def test_streaming_needs_a_twentieth_of_the_memory_and_no_more_for_more_children():
    many = LayerShape(**{**CAPSNET_LAYER.__dict__, "in_capsules": 8192})
    jobs = [
        layer_job(shape, 128, train=True, streaming=streaming)
        for shape, streaming in ((CAPSNET_LAYER, True), (CAPSNET_LAYER, False), (many, True))
    ]
    streaming, plain, grown = (peak.extra for peak in measure_peaks(jobs))
    assert streaming < plain / 20
    assert grown < 1.2 * streaming


@pytest.mark.skipif(not can_measure(), reason="this system does not tell a process's peak")
def test_a_network_of_convolutional_capsules_fits_where_its_estimate_says():
    options = {"conv_kinds": (8, 8, 8)}
    arguments = {"num_classes": 10, "in_channels": 3, "image_size": 64, "routing": "fm", **options}
    (row,) = estimate("resnet-caps-grid-small", 64, 10, 32, 3, ["fm"], **options)
    (peak,) = measure_peaks([model_job("resnet-caps-grid-small", arguments, 32, train=True)])
    measured = peak.extra + peak.held
    assert abs(row.training_bytes / measured - 1) < 0.25, (row, measured)
    assert measured < 2e9


@pytest.mark.skipif(not can_measure(), reason="this system does not tell a process's peak")
def test_shared_votes_need_no_more_memory_for_more_positions():
    """Nor with batch norm but for copies of the children: gradients through votes and statistics add up."""
    shapes = [
        LayerShape(children, 10, 16, 16, "matrix", norm, 8) for norm in (None, "pose") for children in (2048, 8192)
    ]
    jobs = [layer_job(shape, 128, train=True, streaming=True) for shape in shapes]
    one, other, one_with_norm, other_with_norm = (peak.extra for peak in measure_peaks(jobs))
    assert other < 1.2 * one
    assert other_with_norm - one_with_norm < 2 * 4 * 128 * (8192 - 2048) * 16


def test_a_batch_that_is_routed_in_pieces_takes_memory():
    """It was extrapolated from smaller batches, one of which one layer routed as a whole: less than nothing."""
    (row,) = estimate("resnet-caps-grid-small", 64, 10, 32, 3, ["em"], conv_kinds=(8, 8, 8))
    assert row.inference_bytes > 30e6


def test_operations_are_pytorchs_own_count():
    (row,) = estimate("resnet-caps-small", 32, 10, 4, 3, ["fm"])
    model = create_model("resnet-caps-small", 10, 3, 32)
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        model.eval()(torch.randn(4, 3, 32, 32))
    with FlopCounterMode(display=False) as both:
        model.train()(torch.randn(4, 3, 32, 32)).activation.sum().backward()
    assert row.inference_flops == forward.get_total_flops()
    assert row.training_flops == both.get_total_flops()


def test_a_walk_over_votes_counts_its_products():
    once, twice = (estimate("capsnet-light", 32, classes, 32, 3, ["fm"])[0] for classes in (10, 20))
    product = 2 * 32 * 512 * 10 * 8 * 16
    assert twice.inference_flops - once.inference_flops == product
    assert twice.training_flops - once.training_flops == 4 * product  # cast, cast anew, and two gradients
    assert twice.votes_bytes - once.votes_bytes == 4 * 32 * 512 * 10 * 16


def test_every_routing_has_a_row_and_a_model_without_has_one():
    rows = estimate("resnet-caps-small", 40, 10, 8, 1)
    assert [row.routing for row in rows] == list_routings()
    parameters = {row.routing: row.parameters for row in rows}
    assert (parameters["fm"], parameters["em"]) == (195_376, 195_396)  # EM has two costs a class
    assert parameters["attention"] == 195_376 + 32 + 17  # a layer norm and a linear layer
    (alone,) = estimate("resnet-pool-small", 32, 10, 8)
    assert (alone.routing, alone.votes_bytes) == ("", 0)


def test_streaming_is_what_keeps_memory_small():
    held, streamed = (estimate("capsnet", 32, 10, 64, 3, ["fm"], streaming=streaming)[0] for streaming in (False, True))
    assert held.training_bytes > streamed.training_bytes + 2 * held.votes_bytes


@pytest.mark.parametrize("routing", ["dynamic", "em"])
def test_many_images_are_told_from_few(routing, monkeypatch):
    rows = []
    for pieces in (1000, 5):
        monkeypatch.setattr("paircaps.bench.estimate.FEW_PIECES", pieces)
        monkeypatch.setattr("paircaps.votes.layout.IMAGE_BYTES", 8 * 4 * 288 * 10 * 16)  # eight images at a time
        rows += estimate("capsnet-light", 28, 10, 128, 1, [routing])
    assert rows[0].training_flops == rows[1].training_flops
    assert rows[0].inference_flops == rows[1].inference_flops
    assert rows[1].training_bytes == pytest.approx(rows[0].training_bytes, rel=0.15)
    assert rows[1].inference_bytes == pytest.approx(rows[0].inference_bytes, rel=0.15)


def test_what_does_not_fit_is_said(monkeypatch):
    rows = estimate("resnet-caps-small", 32, 10, 8, 3, ["fm"])
    row = rows[0]
    assert row.adam_bytes == 8 * row.parameters
    enough = row.training_bytes + row.adam_bytes
    for free, answer in (
        (enough + 1, "yes"),
        (enough, "inference only"),
        (row.inference_bytes + 1, "inference only"),
        (1, "no"),
    ):
        monkeypatch.setattr("paircaps.bench.estimate.available_memory", lambda free=free: free)
        assert f"| {answer} |" in as_text(rows, "8 images")


def test_live_bytes_follow_tensors():
    live = MetaMemory()
    kept = torch.empty(100, device="meta")
    live.hold(kept)
    with live:
        one = kept + 1
        two = (one + 1).view(10, 10)
        del one
        two.relu()
        three = two * 2
    assert live.live == 3 * 400
    assert live.peak == 3 * 400
    del two, three
    assert live.live == 400


def test_a_convolution_lays_its_operands_out_anew():
    convolution = torch.nn.Conv2d(2, 3, 1, bias=False, device="meta")
    images = torch.empty(4, 2, 8, 8, device="meta", requires_grad=True)
    live = MetaMemory()
    with live:
        drawn = convolution(images)
    assert live.peak == drawn.nbytes + (drawn.nbytes + convolution.weight.nbytes)  # a copy of the larger one
    held = live.live
    with live:
        drawn.backward(torch.empty_like(drawn))
    assert live.peak >= held + 2 * drawn.nbytes + int(1.5 * drawn.nbytes) - drawn.nbytes


def test_a_walk_has_buffers_of_its_own():
    def peak(tile):
        layer = CapsuleLayer(64, 10, vote_norm=None, streaming=True, tile=tile).to("meta")
        live = MetaMemory()
        with live, torch.no_grad(), only("tiles"):
            layer(torch.empty(128, 64, 16, device="meta"))
        return live.peak

    assert peak(32) - peak(16) > 2 * 4 * 16 * 10 * 16 * 128  # two buffers of sixteen children more


def test_auto_estimates_the_routing_that_the_model_is_published_with():
    rows = estimate("resnet-caps-small", 16, 10, 2, routings=("auto",))
    assert [row.routing for row in rows] == ["fm"]
