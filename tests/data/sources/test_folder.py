"""Your own pictures: every mode and size, splits by class and content, and every way a folder can be wrong."""

import io
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from paircaps.data import DataError, decode_picture, load_dataset

GREY, RED = 120, (200, 30, 20)


def save(path, picture, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, **options)
    return path


def random_picture(seed, size=(20, 16)):
    pixels = np.random.default_rng(seed).integers(256, size=(size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.fixture
def pets(tmp_path):
    """Two classes of thirty pictures, of several formats."""
    endings = [".png", ".jpg", ".bmp", ".webp", ".JPEG", ".PNG"]
    for label, name in enumerate(("cat", "dog")):
        for number in range(30):
            save(tmp_path / "pets" / name / f"{number}{endings[number % 6]}", random_picture(100 * label + number))
    return tmp_path / "pets"


def encoded(picture, kind="PNG", **options):
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def decode(picture, kind="PNG", channels=3, size=(8, 8), fit="stretch", **options):
    return decode_picture(encoded(picture, kind, **options), "test", size, channels, fit)


def test_a_folder_is_split_by_content(pets):
    train, test = (load_dataset(pets, split, image_size=12) for split in ("train", "test"))
    assert train.classes == test.classes == ("cat", "dog")
    assert len(train) + len(test) == 60
    assert 3 <= len(test) <= 25
    assert train.images.shape[1:] == (3, 12, 12)
    seen = {image.numpy().tobytes() for image in train.images}
    assert not any(image.numpy().tobytes() in seen for image in test.images)


def test_the_split_depends_on_content_and_seed_alone(pets, tmp_path):
    before = load_dataset(pets, "test")
    for path in list((pets / "cat").iterdir()):
        path.rename(path.with_name(f"renamed {path.name}"))
    shutil.copytree(pets, tmp_path / "copy")
    after = load_dataset(tmp_path / "copy", "test")
    as_set = [sorted(image.numpy().tobytes() for image in data.images) for data in (before, after)]
    assert as_set[0] == as_set[1]
    other = load_dataset(pets, "test", seed=1)
    assert sorted(image.numpy().tobytes() for image in other.images) != as_set[0]
    half = load_dataset(pets, "test", test_fraction=0.5)
    assert 20 <= len(half) <= 40


def test_copies_of_a_picture_are_never_on_both_sides(pets):
    for path in list((pets / "dog").iterdir()):
        shutil.copy(path, path.with_name(f"copy of {path.name}"))
    train, test = (load_dataset(pets, split) for split in ("train", "test"))
    seen = {image.numpy().tobytes() for image in train.images}
    assert not any(image.numpy().tobytes() in seen for image in test.images)


def test_train_and_test_folders_are_taken_as_they_are(tmp_path):
    for split, count in (("train", 4), ("test", 2)):
        for name in ("a", "b"):
            for number in range(count):
                save(tmp_path / split / name / "deeper" / f"{number}.png", random_picture(number))
    assert len(load_dataset(tmp_path, "train")) == 8
    assert load_dataset(tmp_path, "test").labels.tolist() == [0, 0, 1, 1]
    save(tmp_path / "test" / "c" / "0.png", random_picture(0))
    with pytest.raises(DataError, match=r"test: class 'c' is not among those of .*train"):
        load_dataset(tmp_path, "test")
    shutil.rmtree(tmp_path / "test")
    with pytest.raises(DataError, match="has train/ alone; train/ and test/ go together"):
        load_dataset(tmp_path, "train")


def test_names_paths_and_roots(pets, monkeypatch):
    whole = load_dataset(pets)
    monkeypatch.chdir(pets.parent)
    for same in (load_dataset("./pets"), load_dataset("folder", root="pets"), load_dataset(str(pets))):
        assert torch.equal(same.images, whole.images)
    with pytest.raises(ValueError, match=r"unknown dataset 'pets'.* For the folder of that name write './pets'"):
        load_dataset("pets")
    with pytest.raises(TypeError, match="as name or as root, not both"):
        load_dataset(pets, root=pets)
    with pytest.raises(DataError, match="is named by its path"):
        load_dataset("folder")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "WEBP"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_every_format(kind, mode):
    colour = RED if mode == "RGB" else GREY
    pixels = decode(Image.new(mode, (30, 20), colour), kind)
    expected = torch.tensor(RED if mode == "RGB" else (GREY,) * 3).view(3, 1, 1).expand(3, 8, 8)
    assert (pixels.int() - expected).abs().max() <= 4


@pytest.mark.parametrize(
    ("picture", "colour"),
    [
        (Image.new("1", (4, 4), 1), (255, 255, 255)),
        (Image.new("LA", (4, 4), (GREY, 255)), (GREY,) * 3),
        (Image.new("LA", (4, 4), (GREY, 0)), (255,) * 3),
        (Image.new("RGBA", (4, 4), (*RED, 255)), RED),
        (Image.new("RGBA", (4, 4), (*RED, 0)), (255,) * 3),
        (Image.new("RGBA", (4, 4), (0, 0, 0, 128)), (127,) * 3),
        (Image.new("RGB", (4, 4), RED).quantize(4), RED),
        (Image.fromarray(np.full((4, 4), 30_000, np.uint16)), (117,) * 3),
        (Image.fromarray(np.full((4, 4), 65_535, np.uint16)), (255,) * 3),
        (Image.fromarray(np.full((4, 4), 200, np.uint16)), (1,) * 3),
    ],
    ids=["1", "LA", "LA clear", "RGBA", "RGBA clear", "RGBA half", "P", "16 bit", "16 bit white", "16 bit dark"],
)
def test_every_mode_of_png(picture, colour):
    assert decode(picture)[:, 3, 3].tolist() == pytest.approx(colour, abs=1)
    grey = decode(picture, channels=1)
    assert grey.shape == (1, 8, 8)
    weights = torch.tensor([0.299, 0.587, 0.114])
    assert grey[0, 3, 3].item() == pytest.approx((torch.tensor(colour).float() * weights).sum().item(), abs=2)


def test_a_palette_with_a_transparent_colour():
    picture = Image.new("P", (4, 4), 1)
    picture.putpalette([10, 20, 30, *RED])
    assert decode(picture, transparency=1)[:, 0, 0].tolist() == [255, 255, 255]
    assert decode(picture)[:, 0, 0].tolist() == list(RED)


def test_cmyk_comes_out_in_its_colours():
    picture = Image.new("RGB", (16, 16), RED).convert("CMYK")
    assert (decode(picture, "JPEG")[:, 4, 4].int() - torch.tensor(RED)).abs().max() <= 6
    assert decode(picture, "JPEG", channels=1).shape == (1, 8, 8)


@pytest.mark.parametrize(("orientation", "corner"), [(1, (0, 0)), (3, (1, 1)), (6, (0, 1)), (8, (1, 0)), (2, (0, 1))])
def test_exif_rotation_is_undone(orientation, corner):
    """A camera on its side: the white corner of the stored picture belongs elsewhere."""
    picture = Image.new("L", (64, 64))
    picture.paste(255, (0, 0, 32, 32))
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = decode(picture, "JPEG", size=(2, 2), exif=exif, quality=95)
    assert divmod(int(pixels[0].argmax()), 2) == corner


def test_ways_to_fit_another_aspect():
    picture = Image.new("L", (40, 20), 255)
    picture.paste(0, (0, 0, 10, 20))
    picture.paste(0, (30, 0, 40, 20))  # black bars left and right of a white square
    assert (decode(picture, fit="crop") > 200).all()  # the filter reaches one pixel over the edge
    padded = decode(picture, fit="pad")
    assert (padded[:, :2] == 0).all()
    assert (padded[:, 3:5, 3:5] == 255).all()
    assert (decode(picture, fit="stretch")[0, :, 0] == 0).all()
    assert decode(picture, size=(5, 9)).shape == (3, 5, 9)


def test_one_pixel_and_an_animation():
    assert (decode(Image.new("L", (1, 1), 9)) == 9).all()
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    moving = decode(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    assert moving[:, 0, 0].tolist() == [255, 0, 0]


def test_a_large_jpeg_is_scaled_down_well():
    picture = random_picture(0, (16, 16)).resize((1600, 1600), Image.Resampling.NEAREST)
    small = decode(picture, "JPEG", size=(16, 16), quality=95)
    whole = torch.tensor(np.array(picture.resize((16, 16), Image.Resampling.BILINEAR))).permute(2, 0, 1)
    assert (small.int() - whole).abs().float().mean() < 3


def png_header(width, height):
    """A PNG that claims a size, with next to nothing in it."""
    content = encoded(Image.new("L", (1, 1)))
    import struct
    import zlib

    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return content[:12] + body + struct.pack(">I", zlib.crc32(body)) + content[33:]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a PNG, JPEG, BMP or WebP picture"),
        (b"just some text\n" * 50, "not a PNG, JPEG, BMP or WebP picture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a PNG"),
        (encoded(Image.new("L", (9, 9)), "GIF"), "not a PNG"),
        (encoded(Image.new("L", (9, 9)), "TIFF"), "not a PNG"),
        (encoded(random_picture(0))[:400], "damaged picture"),
        (encoded(random_picture(0), "JPEG")[:300], "damaged picture"),
        (encoded(random_picture(0), "WEBP")[:100], "damaged picture|not a PNG"),
        (png_header(20_000, 20_000), "400,000,000 pixels are too many, 64,000,000 at most"),
        (png_header(9_000, 9_000), "9000×9000 pixels are too many"),
        (png_header(2**31 - 1, 2**31 - 1), "pixels are too many"),
        (png_header(10_000, 9_500), "pixels are too many"),
    ],
)
def test_pictures_that_cannot_be_read_are_named(tmp_path, content, message):
    with pytest.raises(DataError, match=f"pic.png: .*({message})"):
        decode_picture(content, "pic.png", (8, 8))
    for number in range(20):
        save(tmp_path / "a" / f"{number}.png", random_picture(number))
    (tmp_path / "a" / "pic.png").write_bytes(content)
    with pytest.raises(DataError, match=f"a/pic.png: .*({message})"):
        load_dataset(tmp_path, "train", test_fraction=1e-9, split_by="content")


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (
            lambda root: (root / "empty").mkdir(),
            r"empty: no picture in it \(.bmp, .jfif, ",
        ),
        (
            lambda root: save(root / "cat" / "a.gif", Image.new("L", (4, 4))),
            "a.gif: pictures of this kind",
        ),
        (lambda root: (root / "cat" / "b.png").mkdir(), None),
        (lambda root: (root / "cat" / "notes.txt").write_text("mine"), None),
        (lambda root: (root / "cat" / "._0.png").write_bytes(b"rubbish of another system"), None),
        (lambda root: (root / "cat" / "c.png").symlink_to("/nowhere"), r"c.png: cannot read: No such file"),
        (lambda root: (root / "cat" / "d.png").symlink_to("/dev/zero"), r"d.png: not an ordinary file"),
    ],
)
def test_what_else_lies_in_folders(pets, break_it, message):
    break_it(pets)
    if message is None:
        assert len(load_dataset(pets, "train")) + len(load_dataset(pets, "test")) == 60
        return
    with pytest.raises(DataError, match=message):
        load_dataset(pets, "train")


def test_folders_that_are_none(tmp_path):
    for folder, message in (
        (tmp_path / "no", "cannot read the folder: No such file"),
        (tmp_path, "no subfolders: give a folder with one subfolder per class"),
        (save(tmp_path / "x.png", Image.new("L", (4, 4))), "Not a directory"),
    ):
        with pytest.raises(DataError, match=message):
            load_dataset(folder)


def test_a_folder_that_cannot_be_read_is_named(pets, without_rights):
    (pets / "dog").chmod(0o000)
    with without_rights(), pytest.raises(DataError, match=r"pets/dog: cannot read the folder: Permission denied"):
        load_dataset(pets)
    (pets / "dog").chmod(0o755)
    (pets / "dog" / "0.png").chmod(0o000)
    with without_rights(), pytest.raises(DataError, match=r"pets/dog/0.png: cannot read: Permission denied"):
        load_dataset(pets)


def test_a_class_that_chance_left_out_is_named(pets):
    by_content = {"split_by": "content"}
    with pytest.raises(DataError, match=r"no picture of 'cat', 'dog' is in the test split; a class needs"):
        load_dataset(pets, "test", test_fraction=1e-9, **by_content)
    save(pets / "one" / "0.bmp", random_picture(1))  # which falls to the train split
    with pytest.warns(UserWarning, match="no picture of 'one' is in the test split"):
        assert 2 not in load_dataset(pets, "test", **by_content).labels
    assert 2 in load_dataset(pets, "train", **by_content).labels
    save(pets / "one" / "0.bmp", random_picture(4))  # to the test split: nothing to learn from
    with pytest.raises(DataError, match="no picture of 'one' is in the train split"):
        load_dataset(pets, "train", **by_content)


def test_every_class_gives_its_share_to_the_test_split(pets):
    for number in range(30, 40):
        save(pets / "dog" / f"{number}.png", random_picture(1000 + number))
    for seed in range(5):
        assert load_dataset(pets, "test", seed=seed).class_counts().tolist() == [6, 8]
        assert load_dataset(pets, "train", seed=seed).class_counts().tolist() == [24, 32]


def test_a_class_of_two_pictures_gives_one_and_a_class_of_one_keeps_it(pets):
    for number in range(2):
        save(pets / "two" / f"{number}.bmp", random_picture(number))
    assert load_dataset(pets, "test").class_counts().tolist() == [6, 6, 1]
    save(pets / "one" / "0.bmp", random_picture(7))
    with pytest.warns(UserWarning, match="no picture of 'one' is in the test split; a class needs two different"):
        assert load_dataset(pets, "test").class_counts().tolist() == [6, 6, 0, 1]


def test_a_damaged_picture_is_skipped_if_asked_for_and_named(pets):
    for number in range(30):
        (pets / "dog" / f"bad {number:02}.png").write_bytes(b"rubbish %d" % number)
    save(pets / "cat" / "moving.gif", random_picture(0))
    with pytest.warns(
        UserWarning, match=r"pets, train split: \d+ pictures skipped, which cannot be read:\n(.*\n){20}  and \d+ more$"
    ):
        train = load_dataset(pets, "train", on_error="skip")
    with pytest.warns(UserWarning, match=r"moving.gif: pictures of this kind are not read"):
        test = load_dataset(pets, "test", on_error="skip")
    assert len(train) + len(test) == 60
    skipped = {line for data in (train, test) for line in data.info.skipped}
    assert len(skipped) == 31
    assert any("bad 07.png: not a PNG" in line for line in skipped)


def test_a_class_of_damaged_pictures_alone_is_an_error_also_if_they_are_skipped(pets):
    for number in range(5):
        (pets / "bird").mkdir(exist_ok=True)
        (pets / "bird" / f"{number}.png").write_bytes(b"rubbish %d" % number)
    with pytest.raises(DataError, match="no picture of 'bird' can be read in the train split"):
        load_dataset(pets, "train", on_error="skip")
    with pytest.raises(ValueError, match="on_error must be one of 'raise', 'skip'"):
        load_dataset(pets, "train", on_error="ignore")


def test_all_bad_pictures_are_named_at_once(pets):
    for name in ("3.webp", "7.jpg"):
        (pets / "cat" / name).write_bytes(b"rubbish")
    with pytest.raises(DataError) as caught:
        load_dataset(pets, "train", test_fraction=1e-9, split_by="content")
    assert [line.split(": ")[0].rsplit("/")[-1] for line in str(caught.value).splitlines()[:-1]] == ["3.webp", "7.jpg"]
    assert str(caught.value).endswith("(in a training: --data.on_error skip)")
    for number in range(30):
        (pets / "dog" / f"bad {number:02}.png").write_bytes(b"rubbish %d" % number)
    with pytest.raises(DataError, match=r"and 12 more\non_error="):
        load_dataset(pets, "train", test_fraction=1e-9, split_by="content")


def test_a_folder_is_called_by_its_name(pets):
    assert load_dataset(pets).info.name == "pets"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"image_size": 0}, ValueError, "image_size must be at least 1"),
        ({"channels": 2}, ValueError, "channels must be one of 1, 3, got 2"),
        ({"fit": "zoom"}, ValueError, "fit must be one of 'crop', 'pad', 'stretch', got 'zoom'"),
        ({"test_fraction": 1.0}, ValueError, "test_fraction must be between 0 and 1"),
        ({"max_pixels": 10}, DataError, "20×16 pixels are too many, 10 at most"),
        ({"split": "valid"}, ValueError, "split must be one of 'train', 'test'"),
        ({"seed": "x"}, TypeError, "seed must be a whole number"),
        ({"image_size": 10**6}, DataError, "GiB of memory, this machine has"),
    ],
)
def test_wrong_options_are_named(pets, options, error, message):
    with pytest.raises(error, match=message):
        load_dataset(pets, **options)


def test_an_empty_class_of_the_test_split_is_named(tmp_path):
    for split in ("train", "test"):
        for name in ("a", "b"):
            save(tmp_path / split / name / "0.png", random_picture(0))
    (tmp_path / "test" / "b" / "0.png").unlink()
    with pytest.raises(DataError, match="test/b: no picture in it"):
        load_dataset(tmp_path, "test")


def test_a_file_too_large_for_a_picture_is_not_read(pets):
    with (pets / "cat" / "huge.png").open("wb") as file:
        file.truncate(300 << 20)
    with pytest.raises(DataError, match=r"huge.png: 314,572,800 bytes are too many for a picture"):
        load_dataset(pets)


def test_a_transparent_grey_of_sixteen_bits():
    picture = Image.fromarray(np.full((4, 4), 1000, np.uint16))
    assert (decode(picture, transparency=1000) == 255).all()
    assert (decode(picture, transparency=999) == 4).all()


def test_a_line_stays_a_line_between_bars():
    assert decode(Image.new("L", (2000, 10), 255), fit="pad").max() == 255


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"fit": "zoom"}, ValueError, "fit must be one of 'crop', 'pad', 'stretch', got 'zoom'"),
        ({"channels": 2}, ValueError, "channels must be one of 1, 3, got 2"),
        ({"size": (0, 8)}, ValueError, "size must be at least 1, got 0"),
        ({"max_pixels": 300_000_000}, ValueError, "max_pixels must be from 1 to 178956970"),
        ({"background": 127.5}, TypeError, "background must be a whole number"),
        ({"size": 200_000}, DataError, "a picture of 200000×200000 would take .* GiB of memory"),
        ({"background": 300}, ValueError, "background must be from 0 to 255"),
    ],
)
def test_wrong_arguments_of_one_picture_are_named(options, error, message):
    with pytest.raises(error, match=message):
        decode_picture(encoded(Image.new("L", (4, 4))), "a", **{"size": 8, **options})


def test_pictures_of_every_name_and_place(pets):
    save(pets / "cat" / "31.jfif", random_picture(7), format="JPEG")
    save(pets / "cat" / ".thumbs" / "0.png", random_picture(8))
    save(pets / "__MACOSX" / "0.png", random_picture(9))
    assert len(load_dataset(pets, "train", test_fraction=1e-9, split_by="content")) == 61
    save(pets / "loose.png", random_picture(10))
    with pytest.warns(UserWarning, match="pictures beside the class folders are passed over: loose.png"):
        assert len(load_dataset(pets, "train", test_fraction=1e-9, split_by="content")) == 61
