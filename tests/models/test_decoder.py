import pytest
import torch

from paircaps import Capsules, DeconvDecoder, DenseDecoder, count_parameters, create_model
from paircaps.models import DeepCapsDecoder, select_pose


def capsules(batch=4, classes=10, pose_dim=16):
    pose = torch.randn(batch, classes, pose_dim)
    return Capsules(pose, pose, torch.rand(batch, classes))


def decoders(image_size=28, channels=1):
    return (
        DeconvDecoder(16, image_size, channels).eval(),
        DenseDecoder(10, 16, image_size, channels).eval(),
        DeepCapsDecoder(16, image_size, channels).eval(),
    )


@pytest.mark.parametrize(("size", "trainable"), [(40, 186_145), (36, 163_041)])
def test_parameters_of_the_deconvolution_decoder_are_the_papers(size, trainable):
    assert count_parameters(DeconvDecoder(16, size)) == trainable


def test_parameters_with_statistics_are_the_papers():
    decoder = DeconvDecoder(16, 40)
    buffers = [buffer for name, buffer in decoder.named_buffers() if "num_batches" not in name]
    assert count_parameters(decoder) + sum(buffer.numel() for buffer in buffers) == 199_041


def test_the_dense_decoder_is_the_first_capsnets():
    layers = 160 * 512 + 512, 512 * 1024 + 1024, 1024 * 784 + 784
    assert count_parameters(DenseDecoder()) == sum(layers)


@pytest.mark.parametrize("size", [28, 29, 30, 31, 8, (17, 40)], ids=str)
@pytest.mark.parametrize("channels", [1, 3])
def test_drawings_have_the_size_of_the_image(size, channels):
    height, width = size if isinstance(size, tuple) else (size, size)
    for decoder in decoders(size, channels):
        drawn = decoder(capsules())
        assert drawn.shape == (4, channels, height, width)
        assert (drawn >= 0).all()
        assert (drawn <= 1).all()


def test_without_a_label_the_most_active_capsule_is_drawn():
    given = capsules()
    for decoder in decoders():
        torch.testing.assert_close(decoder(given), decoder(given, given.activation.argmax(dim=-1)))
        least = given.activation.argmin(dim=-1)
        assert not torch.allclose(decoder(given), decoder(given, least))


def test_only_the_chosen_pose_is_read():
    given, label = capsules(), torch.tensor([0, 3, 9, 3])
    others = given.pose.clone()
    others[torch.arange(4), label] = 0
    for decoder in decoders():
        torch.testing.assert_close(decoder(given, label), decoder(given._replace(pose=given.pose - others), label))


def test_only_the_dense_decoder_knows_whose_pose_it_draws():
    given = capsules()
    same = given._replace(pose=given.pose[:, :1].expand(-1, 10, -1))
    first, second = torch.tensor([0, 3, 9, 3]), torch.tensor([1, 2, 4, 8])
    deconv, dense, deepcaps = decoders()
    for decoder in (deconv, deepcaps):
        torch.testing.assert_close(decoder(same, first), decoder(same, second))
    assert not torch.allclose(dense(same, first), dense(same, second))


def test_two_digits_are_drawn_each_from_its_own_pose():
    given, labels = capsules(), torch.tensor([[0, 1], [3, 2], [9, 0], [5, 4]])
    for decoder in decoders():
        both = decoder(given, labels)
        assert both.shape == (4, 2, 1, 28, 28)
        for digit in range(2):
            torch.testing.assert_close(both[:, digit], decoder(given, labels[:, digit]))


@pytest.mark.usefixtures("fresh_compiler")
def test_decoders_compile_and_export():
    given, label = capsules(), torch.tensor([0, 3, 9, 3])
    for decoder in decoders():
        compiled = torch.compile(decoder, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(given, label), decoder(given, label))
        exported = torch.export.export(decoder, (given, label)).module()
        torch.testing.assert_close(exported(given, label), decoder(given, label))


def test_select_pose_takes_the_labelled_one():
    given, label = capsules(), torch.tensor([0, 3, 9, 3])
    torch.testing.assert_close(select_pose(given, label), given.pose[torch.arange(4), label])


@pytest.mark.parametrize("name", ["capsnet-light", "resnet-caps-small", "resnet-pool-small"])
def test_every_kind_of_model_can_be_drawn(name):
    model = create_model(name)
    decoder = DeconvDecoder(model.pose_dim, model.image_size, model.in_channels)
    image = torch.rand(4, 1, 28, 28)
    assert decoder(model(image), torch.tensor([0, 1, 2, 3])).shape == image.shape


@pytest.mark.parametrize(
    ("label", "error", "words"),
    [
        (torch.tensor([0, 3, 9, 10]), ValueError, r"0\.\.9, got 10"),
        (torch.tensor([0, 3, -2, 1]), ValueError, r"0\.\.9, got -2"),
        (torch.tensor([0, 3, 9]), ValueError, r"\(4,\) or \(4, drawings\).*\(3,\)"),
        (torch.zeros(4), TypeError, "float32"),
        (torch.zeros(4, 2, 2).long(), ValueError, r"\(4, 2, 2\)"),
    ],
)
def test_a_bad_label_is_refused_in_words_that_quote_it(label, error, words):
    for decoder in decoders():
        with pytest.raises(error, match=words):
            decoder(capsules(), label)


def test_what_is_no_batch_of_capsules_is_refused():
    for decoder in decoders():
        with pytest.raises(TypeError, match="takes Capsules, got Tensor"):
            decoder(capsules().pose)
        with pytest.raises(ValueError, match=r"\(10, 16\): 2 axes are too few"):
            decoder(Capsules(*(part[0] for part in capsules())))
        with pytest.raises(TypeError, match="label must be a tensor of class indices, got list"):
            decoder(capsules(), [1, 2, 3, 4])


def test_a_masked_pose_cannot_spoil_the_drawing():
    # 0 · inf is NaN: a mask that multiplies let one broken capsule into every drawing
    given, label = capsules(), torch.tensor([0, 3, 9, 3])
    given.pose[:, 5] = torch.inf
    for decoder in decoders():
        assert decoder(given, label).isfinite().all()


def test_poses_of_another_size_are_refused():
    deconv, dense, deepcaps = decoders()
    for decoder in (deconv, deepcaps):
        with pytest.raises(ValueError, match="poses of 16 dimensions, got 8"):
            decoder(capsules(pose_dim=8))
    with pytest.raises(ValueError, match=r"\(4, 10, 16\).*\(4, 5, 16\)"):
        dense(capsules(classes=5))
