"""The demonstration in small: every contender trains, and the table and pictures come out."""

from PIL import Image

from paircaps._utils.shipped import DIGITS, shipped_folders
from paircaps.cli import main
from paircaps.model_files import find_models
from paircaps.paper.demo import COMPARED_MODELS


def test_the_demonstration(tmp_path, capsys):
    out = tmp_path / "demo"
    words = ["demo", "--out", str(out), "--steps", "1", "--limit", "80", "--quiet"]
    assert main(words) == 0
    said = capsys.readouterr().out
    for title in COMPARED_MODELS:
        assert f"| {title} |" in said
    assert "195,376" in said
    assert (out / "table.md").read_text() in said
    shipped = [name for name in DIGITS if name in shipped_folders()]
    assert f"paircaps serve {' '.join([str(out), *shipped])}\n" in said, "and how to open the page"
    assert all(name in said.splitlines()[-1] for name in shipped)
    assert list(find_models([out])) == [title.replace(" ", "-").lower() for title in COMPARED_MODELS]
    for name in ("translated-glyphs", "affine-glyphs"):
        with Image.open(out / f"{name}.png") as picture:
            assert picture.width > 800
    assert main(words) == 0  # finished trainings are not repeated
    assert main([*words, "--seed", "1"]) == 1
    assert "holds a run of another recipe" in capsys.readouterr().err
