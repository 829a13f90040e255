"""The interface that programs use: right answers, and plain sentences."""

import asyncio
import base64
import io
import json
import time

import numpy as np
import pytest
import torch
from explain.small import saved, small_network
from PIL import Image
from serve.conftest import multipart
from serve.pictures import SVG, as_file, cut_out, flat_png, seven, sixteen_bit, turned_by_exif

from paircaps import FMAgreement, Routing, load
from paircaps.data import decode_picture
from paircaps.explain import dimensions
from paircaps.model_files import save_model
from paircaps.serve.networks import Networks


def image_of(address):
    assert address.startswith("data:image/png;base64,")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))))


def test_models_are_told_with_all_that_a_page_needs(ask):
    status, said = ask("GET", "/api/models")
    assert status == 200
    facts = {model["name"]: model for model in said["models"]}
    assert list(facts) == ["fm", "dynamic", "em", "pool", "colour", "mute", "pair", "cropped"]
    assert facts["fm"]["pose_range_of"] == "glyphs"
    assert (facts["fm"]["width"], facts["fm"]["height"], facts["fm"]["channels"]) == (40, 40, 1)
    assert facts["em"]["routing"] == "em"
    assert facts["pool"]["routing"] is None
    assert facts["colour"]["classes"] == ["cat", "dog", "ship"]
    assert (facts["pool"]["agrees"], facts["fm"]["agrees"], facts["mute"]["draws"]) == (False, True, False)
    assert facts["pair"]["labels_per_image"] == 2
    for model in said["models"]:
        assert np.shape(model["pose_low"]) == (len(model["classes"]), model["pose_dim"])
        assert (np.array(model["pose_low"]) <= np.array(model["pose_high"])).all()


def test_sliders_are_measured_between_requests(folders, monkeypatch):
    monkeypatch.setattr(dimensions, "WARPED_EACH", 4)
    monkeypatch.setattr(dimensions, "_LOOKED_THROUGH", 8)
    networks = Networks({name: folders[name] for name in ("mute", "fm", "colour")})
    assert [facts.sliders for facts in networks.facts] == [None] * 3
    networks.measure_sliders()
    said = asyncio.run(networks.run(networks.predict, as_file(seven()), "fm", None, "pad", False, False))
    assert said.model == "fm"
    assert networks.facts[2].sliders is None, "a request does not wait for the whole measurement"
    while networks.facts[2].sliders is None:
        time.sleep(0.05)
    mute, fm, colour = (facts.sliders for facts in networks.facts)
    assert mute is None, "it cannot draw"
    for sliders, classes in ((fm, 10), (colour, 3)):
        assert len(sliders) == classes
        for row in sliders:
            assert sorted(slider.dimension for slider in row) == list(range(16))
            assert [slider.change for slider in row] == sorted((slider.change for slider in row), reverse=True)


def test_networks_of_handwritten_digits_come_first_and_say_so(tmp_path):
    trained = {"glyphs": "affine-glyphs", "clothes": "fashion-mnist", "mine": "my pictures", "hand": "translated-mnist"}
    places = {name: saved(tmp_path / name, small_network(), dataset=dataset) for name, dataset in trained.items()} | {
        "silent": saved(tmp_path / "silent", small_network())
    }
    places = {"two": saved(tmp_path / "two", small_network(labels=2), dataset="multi-mnist"), **places}
    networks = Networks(places)
    facts = {facts.name: (facts.trained_on, facts.digits) for facts in networks.facts}
    assert list(facts) == ["hand", "two", "glyphs", "clothes", "mine", "silent"]
    assert networks[None].name == "hand"
    assert facts["hand"] == ("translated-mnist", "handwritten")
    assert facts["two"] == ("multi-mnist", "handwritten")
    assert facts["glyphs"] == ("affine-glyphs", "printed")
    assert (facts["clothes"], facts["mine"]) == (("fashion-mnist", None), ("my pictures", None))
    assert facts["silent"] == (None, None)


def test_a_prediction_is_what_the_network_says(predict, folders):
    status, said = predict(as_file(seven()), model="fm")
    assert status == 200
    network = load(folders["fm"])
    image = decode_picture(as_file(seven()), "x", 40, 1, "pad", 0).unsqueeze(0)
    capsules = network(image)
    values = torch.tensor([said["activations"][name] for name in network.classes])
    torch.testing.assert_close(values, capsules.activation[0], rtol=1e-4, atol=1e-5)
    winner = int(capsules.activation.argmax())
    assert said["classes"] == [network.classes[winner]] == [said["looked_at"]]
    torch.testing.assert_close(torch.tensor(said["pose"]), capsules.pose[0, winner], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        torch.tensor([said["certainty"][name] for name in network.classes]),
        capsules.activation[0].softmax(-1),
        rtol=1e-3,
        atol=1e-4,
    )
    assert np.array_equal(image_of(said["seen"]), image[0, 0].numpy())
    drawn = (network.reconstruct(image)[0, 0] * 255).detach().numpy()
    assert np.abs(image_of(said["reconstruction"]) - drawn).max() <= 1
    total = np.sum(said["agreement"]["shares"])
    assert total == pytest.approx(capsules.activation.max().item(), rel=1e-3)
    assert len(said["agreement"]["rows"]) == len(said["agreement"]["shares"])
    assert said["others"] == []


def test_the_first_network_is_asked_unless_told(predict):
    assert predict(as_file(seven()))[1]["model"] == "fm"
    assert predict(as_file(seven()), model="")[1]["model"] == "fm"


def test_a_class_is_looked_at_when_asked_for(predict, folders):
    _, said = predict(as_file(seven()), **{"model": "dynamic", "class": "3"})
    assert said["looked_at"] == "3"
    assert np.sum(said["agreement"]["shares"]) == pytest.approx(said["activations"]["3"], rel=1e-3)
    network = load(folders["dynamic"])
    image = decode_picture(as_file(seven()), "x", 40, 1, "pad", 0).unsqueeze(0)
    drawn = (network.reconstruct(image, torch.tensor([3]))[0, 0] * 255).detach().numpy()
    assert np.abs(image_of(said["reconstruction"]) - drawn).max() <= 1


def test_all_others_are_asked_when_compared(predict):
    _, said = predict(as_file(seven()), model="em", compare="true")
    assert [other["model"] for other in said["others"]] == [
        "fm",
        "dynamic",
        "pool",
        "colour",
        "mute",
        "pair",
        "cropped",
    ]
    for other in said["others"]:
        _, alone = predict(as_file(seven()), model=other["model"])
        assert other["classes"] == alone["classes"]
        assert other["certainty"] == pytest.approx(alone["certainty"][alone["classes"][0]], rel=1e-4)


def test_networks_of_every_kind_answer(predict):
    _, pool = predict(as_file(seven()), model="pool")
    assert pool["agreement"] is None
    assert len(pool["pose"]) > 16
    _, mute = predict(as_file(seven()), model="mute")
    assert mute["reconstruction"] is None
    assert mute["agreement"] is not None
    _, pair = predict(as_file(seven()), model="pair")
    assert len(pair["classes"]) == 2
    _, colour = predict(as_file(seven(mode="RGB")), model="colour")
    assert image_of(colour["seen"]).shape == (32, 32, 3)


def test_certainty_of_bounded_activations_is_their_own(predict):
    _, said = predict(as_file(seven()), model="dynamic")
    assert said["certainty"] == pytest.approx(said["activations"])


def test_certainty_of_a_network_trained_for_a_margin_is_no_softmax(tmp_path):
    folder = tmp_path / "margin"
    folder.mkdir()
    save_model(folder, small_network(), {"loss": {"name": "margin"}})
    said = Networks({"margin": folder}).predict(as_file(seven()), None, None, "pad", False, False)
    expected = {name: min(max(value, 0), 1) for name, value in said.activations.items()}
    assert said.certainty == pytest.approx(expected)
    assert min(said.activations.values()) < 0


def test_dark_on_light_can_be_exchanged(predict):
    paper = seven().point(lambda value: 255 - value)
    _, said = predict(as_file(paper), invert="true")
    _, plain = predict(as_file(seven()))
    assert said["activations"] == pytest.approx(plain["activations"], abs=1e-3)


def test_pictures_of_another_aspect_are_fitted_as_told(predict):
    wide = Image.new("L", (400, 100), 255)
    seen = {
        fit: image_of(predict(as_file(wide), fit=fit, invert="false")[1]["seen"]) for fit in ("pad", "crop", "stretch")
    }
    assert seen["pad"][0, 20] == 0
    assert seen["pad"][20, 20] == 255
    assert seen["crop"].min() == 255
    assert seen["stretch"].min() == 255


def test_the_map_lies_where_the_network_looks_also_if_that_is_but_the_middle(predict):
    _, said = predict(as_file(seven()), model="cropped")
    assert image_of(said["seen"]).shape == (32, 32)
    assert said["agreement"]["rows"] == said["agreement"]["columns"] == [8.5, 16.5, 24.5, 32.5]


def test_the_others_see_the_picture_as_it_was_asked_for(predict):
    paper = Image.new("RGB", (400, 200), "white")
    paper.paste((0, 60, 120), (150, 20, 200, 180))
    fields = {"fit": "crop", "invert": "true"}
    _, said = predict(as_file(paper), model="fm", compare="true", **fields)
    for other in said["others"]:
        _, alone = predict(as_file(paper), model=other["model"], **fields)
        assert other["classes"] == alone["classes"]
        assert other["certainty"] == pytest.approx(alone["certainty"][alone["classes"][0]], rel=1e-4)


def test_the_pose_is_that_of_the_class_that_was_asked_for(predict, folders):
    network = load(folders["fm"])
    capsules = network(decode_picture(as_file(seven()), "x", 40, 1, "pad", 0).unsqueeze(0))
    least = int(capsules.activation.argmin())
    _, said = predict(as_file(seven()), **{"class": network.classes[least]})
    torch.testing.assert_close(torch.tensor(said["pose"]), capsules.pose[0, least], rtol=1e-4, atol=1e-5)


def test_each_class_is_drawn_by_its_own_weights(ask, folders):
    """The dense decoder has a place for every class."""
    pictures = []
    for name in ("cat", "ship"):
        body = json.dumps({"model": "colour", "class": name, "pose": [0.5] * 16})
        pictures.append(image_of(ask("POST", "/api/draw", body, {"Content-Type": "application/json"})[1]["picture"]))
    network = load(folders["colour"])
    poses = torch.zeros(1, 3, 16)
    poses[0, 2] = 0.5
    drawn = network.decoder.draw(poses, torch.tensor([2]))[0].permute(1, 2, 0) * 255
    assert np.abs(pictures[1] - drawn.detach().numpy()).max() <= 1
    assert not np.array_equal(*pictures)


def test_a_pose_is_drawn(ask, folders):
    network = load(folders["fm"])
    pose = torch.linspace(-1, 1, 16)
    body = json.dumps({"model": "fm", "class": "4", "pose": pose.tolist()})
    status, said = ask("POST", "/api/draw", body, {"Content-Type": "application/json"})
    assert status == 200
    drawn = network.decoder.layers(pose.unsqueeze(0))[0, 0] * 255
    assert np.abs(image_of(said["picture"]) - drawn.detach().numpy()).max() <= 1


GOOD = {
    "alpha": cut_out(),
    "16-bit": sixteen_bit(),
    "CMYK": as_file(seven(mode="CMYK"), "JPEG", quality=95),
    "palette": as_file(seven(mode="P")),
    "JPEG": as_file(seven(), "JPEG", quality=95),
    "progressive JPEG": as_file(seven(), "JPEG", quality=95, progressive=True),
    "BMP": as_file(seven(), "BMP"),
    "WebP": as_file(seven(), "WEBP", lossless=True),
    "EXIF-rotated": turned_by_exif(),
}


@pytest.mark.parametrize("kind", GOOD)
def test_pictures_of_every_kind_are_seen_alike(predict, kind):
    status, said = predict(GOOD[kind])
    assert status == 200
    expected = image_of(predict(as_file(seven()))[1]["seen"]).astype(int)
    assert np.abs(image_of(said["seen"]).astype(int) - expected).mean() < 2


@pytest.mark.parametrize("side", [1, 3])
def test_a_picture_of_a_pixel_is_a_picture(predict, side):
    status, said = predict(as_file(Image.new("L", (side, side), 255)), invert="false")
    assert status == 200
    assert image_of(said["seen"]).min() == 255


BAD = {
    "empty": (b"", 400, "empty"),
    "text": (b"this is no picture at all", 400, "not a PNG, JPEG, BMP or WebP picture"),
    "truncated": (as_file(seven())[:150], 400, "damaged"),
    "truncated JPEG": (as_file(seven(), "JPEG")[:400], 400, "damaged"),
    "SVG": (SVG, 400, "not a PNG, JPEG, BMP or WebP picture"),
    "GIF": (as_file(seven(mode="P"), "GIF"), 400, "not a PNG, JPEG, BMP or WebP picture"),
    "bomb": (flat_png(10_000, 8_000), 400, "too many"),
    "16-bit bomb": (flat_png(10_000, 8_000, 16), 400, "too many"),
    "thin": (flat_png(1, 2_000_000), 400, "is too long here"),
    "colour bomb": (flat_png(5_000, 4_000, 8, 6), 400, "too many"),
    "too long": (b"\0" * (9 << 20), 413, "at most"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_pictures_are_refused_in_a_sentence(predict, kind):
    content, code, words = BAD[kind]
    status, said = predict(content)
    assert status == code
    assert words in said["detail"]
    assert "Traceback" not in said["detail"]
    assert predict(as_file(seven()))[0] == 200, "and the next one is answered"


def test_a_bomb_is_small():
    assert len(BAD["bomb"][0]) < 100_000


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"model": "nobody"}, 404, "no model 'nobody': here are fm, dynamic"),
        ({"class": "eleven"}, 404, "no class 'eleven': fm knows 0, 1"),
        ({"fit": "squeeze"}, 422, "fit: input should be"),
        ({"invert": "perhaps"}, 422, "invert: input should be"),
        ({"compare": "[]"}, 422, "compare: input should be"),
    ],
)
def test_wrong_fields_are_refused_in_a_sentence(predict, fields, code, words):
    status, said = predict(as_file(seven()), **fields)
    assert status == code
    assert words in said["detail"]


def test_a_picture_must_be_there(ask):
    body, kind = multipart(as_file(seven()), name="picture")
    status, said = ask("POST", "/api/predict", body, {"Content-Type": kind})
    assert (status, said["detail"]) == (422, "no picture: send its file in the multipart field 'file'")
    status, said = ask("POST", "/api/predict", b"file=abc", {"Content-Type": "application/x-www-form-urlencoded"})
    assert status == 422
    assert "file" in said["detail"]
    status, said = ask("POST", "/api/predict", as_file(seven()), {"Content-Type": "image/png"})
    assert status == 422
    status, said = ask("POST", "/api/predict", b"garbage", {"Content-Type": "multipart/form-data; boundary=x"})
    assert status in (400, 422)
    status, said = ask("POST", "/api/predict", b"garbage", {"Content-Type": "multipart/form-data"})
    assert status in (400, 422)
    assert isinstance(said["detail"], str)


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"model": "fm", "class": "4", "pose": [0.0] * 15}, 400, "a pose of fm is 16 numbers, got 15"),
        ({"model": "fm", "class": "4", "pose": [float("nan")] * 16}, 422, "pose.0: input should be a finite number"),
        ({"model": "fm", "class": "4", "pose": [float("inf")] * 16}, 422, "pose.0: input should be a finite number"),
        ({"model": "fm", "class": "4", "pose": [0.0] * 15 + [-3e38]}, 400, "between -1e+06 and 1e+06, got -3e+38"),
        ({"model": "fm", "class": "4", "pose": [0.0] * 15 + [1e300]}, 400, "between -1e+06 and 1e+06, got 1e+300"),
        ({"model": "fm", "class": "4", "pose": ["0.1"] * 16}, 422, "pose.0: input should be a valid number"),
        ({"model": "fm", "class": "4", "pose": [True] * 16}, 422, "pose.0: input should be a valid number"),
        ({"model": "fm", "class": "4", "pose": [0.0] * 20_000}, 422, "pose: list should have at most 16384 items"),
        ({"model": "fm", "class": "4" * 5000, "pose": [0.0] * 16}, 404, "4444…'"),
        ({"model": "fm", "class": "x", "pose": [0.0] * 16}, 404, "no class 'x'"),
        ({"model": "x", "class": "4", "pose": [0.0] * 16}, 404, "no model 'x'"),
        ({"model": "mute", "class": "4", "pose": [0.0] * 16}, 400, "without a decoder"),
        ({"model": "fm", "pose": []}, 422, "class"),
        ([], 422, "request"),
        ("text", 422, "request"),
    ],
)
def test_wrong_poses_are_refused_in_a_sentence(ask, body, code, words):
    status, said = ask("POST", "/api/draw", json.dumps(body), {"Content-Type": "application/json"})
    assert status == code
    assert words in said["detail"]
    assert len(said["detail"]) < 300


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"[" * 20_000, b""])
def test_what_is_no_json_is_refused_too(ask, body):
    status, said = ask("POST", "/api/draw", body, {"Content-Type": "application/json"})
    assert 400 <= status < 500
    assert isinstance(said["detail"], str)


def test_only_a_picture_may_be_large(ask):
    body = json.dumps({"model": "fm", "class": "4", "pose": [{}] * 200_000})
    status, said = ask("POST", "/api/draw", body, {"Content-Type": "application/json"})
    assert status == 413
    assert "bytes are too many, 262,144 at most" in said["detail"]


def test_one_picture_at_a_time(ask):
    body, kind = multipart(as_file(seven()))
    twice = body.removesuffix(b"--edge--\r\n") + body
    status, said = ask("POST", "/api/predict", twice, {"Content-Type": kind})
    assert status == 400
    assert "one picture at a time" in said["detail"]


def test_the_interface_describes_itself_without_outside_scripts(ask):
    status, page = ask("GET", "/docs")
    assert status == 200
    assert b"http" not in page.replace(b"http-equiv", b"")
    status, described = ask("GET", "/openapi.json")
    assert status == 200
    assert set(described["paths"]) == {"/api/models", "/api/predict", "/api/draw"}
    fields = described["components"]["schemas"]
    form = next(schema for name, schema in fields.items() if name.startswith("Body"))
    assert set(form["properties"]) == {"file", "model", "class", "fit", "invert", "compare"}
    for schema in (form, fields["PredictionResponse"], fields["ModelFacts"], fields["AgreementMap"], fields["Slider"]):
        documented = [field for field in schema["properties"].values() if field.get("description")]
        assert len(documented) >= len(schema["properties"]) - 4


def test_a_routing_without_evidence_predicts_without_a_map(tmp_path, monkeypatch):
    """Every request for such a network was refused, because the map of agreement was always asked for."""
    monkeypatch.setattr(FMAgreement, "evidence", Routing.evidence)
    networks = Networks({"silent": saved(tmp_path / "silent", small_network("fm", size=40))})
    prediction = networks.predict(as_file(seven()), None, None, "pad", False, False)
    assert prediction.agreement is None
    assert prediction.reconstruction
    assert [facts.agrees for facts in networks.facts] == [False]
