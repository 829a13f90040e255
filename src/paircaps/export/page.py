"""A page without a server: the page of ``paircaps serve`` as a folder of files, whose networks run in the browser."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor

from paircaps._utils.checks import require_positive
from paircaps._utils.extras import require_extra
from paircaps._utils.words import Say
from paircaps.errors import DataError, os_data_error
from paircaps.explain.trace import has_agreement, trace
from paircaps.export.about import about
from paircaps.export.compare import differences, load_samples, outputs
from paircaps.export.formats import DECODER, FORMATS, Trained
from paircaps.export.graphs import Answers, network_program, output_names
from paircaps.export.onnx_files import as_onnx
from paircaps.export.web_runtime import runtime_files
from paircaps.export.write import IMAGES, decoder_differences, require_near
from paircaps.model_files import read_metadata
from paircaps.network import Network
from paircaps.serve.served import ServedNetwork, handwriting_first, load_served, map_positions

FORMAT, PAGE_VERSION = "paircaps-page", 1
LIST = "models.json"
"""File that lists the networks, with the fields of ``/api/models``, and all files of the page."""

INDEX = "index.html"
COMMON = ("page.js", "pad.js", "view.js", "sliders.js", "snapshot.js", "words.js", "style.css", "icon.svg")
"""Files that the page of the server has as well."""

STATIC = ("answers.js", "prepare.js", "worker.js")
"""Files that answer in the browser, in place of the server."""

NETWORKS, RUNTIME = "networks", "onnxruntime"
SHARES = "shares"
"""Output of a graph: share of every position in the activation of every class, (batch, J, rows, columns)."""

_LARGEST = 256 << 20
"""Most bytes of a picture's file."""


class PageAnswers(Answers):
    """A network's answers with, where its agreement can be shown, the maps of it: (B, J, rows, columns).

    Args:
        network: the network.
    """

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        maps = has_agreement(network)
        self.outputs = (*output_names(network), SHARES) if maps else output_names(network)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Answers of the network.

        Args:
            images: (B, C, H, W) in 0..1, of the size before the centre crop.

        Returns:
            a tensor for each of ``outputs``.
        """
        if SHARES not in self.outputs:
            return super().forward(images)
        traced = trace(self.network, images)
        activation, pose = traced.capsules.activation, traced.capsules.pose
        return activation, self.network.certainty(activation), pose, traced.maps()


@dataclass(frozen=True)
class PageReport:
    """A page that was written.

    Args:
        place: its folder.
        networks: names of its networks.
        sizes: bytes of each file, by its path in the folder.
    """

    place: Path
    networks: tuple[str, ...]
    sizes: dict[str, int]

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return sum(self.sizes.values())

    def parts(self) -> dict[str, int]:
        """Bytes of the networks, of ONNX Runtime Web, and of the page itself."""
        parts: dict[str, int] = {NETWORKS: 0, "ONNX Runtime Web": 0, "page": 0}
        for name, size in self.sizes.items():
            folder = name.partition("/")[0]
            parts[{NETWORKS: NETWORKS, RUNTIME: "ONNX Runtime Web"}.get(folder, "page")] += size
        return parts

    def as_dict(self) -> dict[str, object]:
        """All fields, for JSON."""
        return {"place": str(self.place), "networks": list(self.networks), "sizes": self.sizes}


def export_page(
    folders: Mapping[str, Path],
    place: Path | str,
    *,
    samples: int = IMAGES,
    data_dir: Path | None = None,
    say: Say = lambda line: None,
) -> PageReport:
    """Write the drawing page of ``paircaps serve`` as a folder of files, whose networks run in the browser.

    Any web server can serve it. It is written whole or not at all; a page that this function wrote there before is
    replaced. Each network is run at once against the original, as :func:`export_network` does it.

    Args:
        folders: folders of trained networks, by name.
        place: folder to write, which must not exist, be empty, or be such a page.
        samples: images to compare on.
        data_dir: folder to search first for datasets.
        say: called with each progress line.

    Returns:
        what was written.

    Raises:
        PaircapsError: if the place cannot be written, a network cannot be exported or does not do what the original
            does, a package is missing, or ONNX Runtime Web is not there and cannot be fetched.
    """
    require_extra("export to a page", extra="export")
    require_positive(samples=samples)
    place = require_free(Path(place))
    files = {f"{RUNTIME}/{name}": content for name, content in runtime_files().items()} | page_files()
    networks = [load_served(name, folder) for name, folder in handwriting_first(folders).items()]
    listed = []
    for served in networks:
        say(f"{served.name}: its graphs, and what its sliders change")
        names = {}
        for kind, content in _graphs(served, place, samples, data_dir).items():
            names[kind] = f"{NETWORKS}/{_file_name(served.name, kind, content)}"
            files[names[kind]] = content
        listed.append(_facts(served) | {"files": names})
    files[LIST] = _list(listed, sorted(files))
    _write(place, files)
    sizes = {name: len(content) for name, content in sorted(files.items())}
    return PageReport(place, tuple(facts["name"] for facts in listed), sizes)


def page_files() -> dict[str, bytes]:
    """Files of a page that do not depend on its networks, by name."""
    source = resources.files("paircaps.serve") / "page"
    files = {name: (source / name).read_bytes() for name in COMMON}
    files |= {name: (source / "static" / name).read_bytes() for name in STATIC}
    files[INDEX] = _without_server((source / INDEX).read_text("utf-8")).encode()
    return files


def _without_server(html: str) -> str:
    """The page without what only a server has, and with what only a folder of files has; both are marked in it."""
    html = re.sub(r"<!--server-->.*?<!--/server-->", "", html, flags=re.DOTALL)
    return re.sub(r"<!--static (.*?)-->", r"\1", html, flags=re.DOTALL)


def _graphs(served: ServedNetwork, place: Path, samples: int, data_dir: Path | None) -> dict[str, bytes]:
    """Graphs of a network and of its decoder, compared with the originals."""
    onnx, trained = FORMATS[".onnx"], Trained(served.folder, served.network, read_metadata(served.folder))
    images = load_samples(served.network, served.folder, samples, data_dir)
    answers = PageAnswers(served.network)
    program = network_program(served.network, lambda _: answers)
    graphs = {"network": as_onnx(program, answers.outputs, about(served.network, trained.metadata))}
    original = outputs(answers, [images.images])
    exported = outputs(onnx.run(graphs["network"], {}), [images.images])
    require_near(differences(exported, original, answers.outputs), place, served.name, images)
    if served.network.decoder is not None:
        files = onnx.decoder_files(trained)
        graphs["decoder"] = files[f"{DECODER}.onnx"]
        pose = original[answers.outputs.index("pose")]
        require_near(decoder_differences(onnx, files, trained, pose), place, f"the decoder of {served.name}", images)
    return graphs


def _file_name(name: str, kind: str, content: bytes) -> str:
    """Name of the file of a graph.

    Its digits say which content it is, so that no browser takes an old file from its cache for a new one.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:40] or "network"
    return f"{plain}-{kind}-{hashlib.sha256(content).hexdigest()[:8]}.onnx"


def _map(network: Network) -> dict[str, list[float]] | None:
    """Where the positions of a map of agreement are in the picture; None of a network without such maps."""
    if not has_agreement(network):
        return None
    blank = torch.zeros(1, network.spec.preparation.channels, *network.spec.preparation.size)
    return map_positions(network, trace(network, blank))


def _facts(served: ServedNetwork) -> dict[str, Any]:
    """Facts of a network, with its sliders, and where the positions of its maps are."""
    steps = served.measured_sliders()
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return served.facts() | {"sliders": done.value, "map": _map(served.network)}


def _list(models: list[dict[str, Any]], files: list[str]) -> bytes:
    """Content of the file that lists the networks and the files."""
    head = {"format": FORMAT, "version": PAGE_VERSION, "largest": _LARGEST, "models": models, "page": [*files, LIST]}
    return (json.dumps(head, ensure_ascii=False) + "\n").encode()


def require_free(place: Path) -> Path:
    """Refuse a folder in which a page would destroy something else; the folder that a link leads to.

    Args:
        place: folder to write.
    """
    place = place.expanduser().resolve()
    if not place.parent.is_dir():
        raise DataError(f"{place}: cannot be written, {place.parent} is no folder")
    if not place.exists():
        return place
    if not place.is_dir():
        raise DataError(f"{place}: is a file; a page is a folder")
    there = sorted(path.relative_to(place).as_posix() for path in place.rglob("*") if not path.is_dir())
    foreign = [name for name in there if name not in _own_files(place)]
    if foreign:
        raise DataError(
            f"{place}: has files that are of no page of this command, such as {foreign[0]}; name a folder that does "
            "not exist"
        )
    return place


def _own_files(place: Path) -> set[str]:
    """Paths of the files that a page in a folder has by its own list; none if it is no page."""
    try:
        listed = json.loads((place / LIST).read_bytes())
    except (OSError, ValueError):
        return set()
    if not isinstance(listed, dict) or listed.get("format") != FORMAT or not isinstance(listed.get("page"), list):
        return set()
    return {name for name in listed["page"] if isinstance(name, str)}


def _write(place: Path, files: Mapping[str, bytes]) -> None:
    """Write files to a folder beside their place, and exchange it with what is there."""
    made = place.with_name(f".{place.name}.{os.getpid()}.{secrets.token_hex(4)}")
    old = made.with_name(f"{made.name}.old")
    try:
        for name, content in files.items():
            path = made / PurePosixPath(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        if place.exists():
            require_free(place)  # nothing was put there meanwhile
            place.replace(old)
        try:
            made.replace(place)
        except BaseException:
            if old.exists():
                old.replace(place)
            raise
    except OSError as error:
        raise os_data_error("write", place, error) from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
