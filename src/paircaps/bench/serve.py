"""Response time of `paircaps serve`: drawings sent to a server on this machine as a browser sends them."""

from __future__ import annotations

import http.client
import io
import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from paircaps._utils.machine import describe_machine, machine_line
from paircaps._utils.words import Say
from paircaps.bench.goals import Goal, goals_as_markdown
from paircaps.bench.timing import interleaved, silent
from paircaps.model_files import find_models, save_model
from paircaps.network import Network, NetworkSpec, Preparation

if TYPE_CHECKING:  # uvicorn is imported when a server is started
    from paircaps.serve.limits import Limits

AT_MOST = 100.0
"""Response time in milliseconds above which drawing feels slow."""

_SIDE = 320  # pixels of the drawing board
_BOUNDARY = "stroke"


def bench_serve(folders: list[Path], repeats: int = 40, say: Say = silent) -> dict[str, Any]:
    """Time a stroke on the drawing board and a move of a pose slider, for every network.

    Args:
        folders: folders of trained networks; if empty, untrained ones of the demonstration's and the paper's sizes.
        repeats: timed requests of every case.
        say: called with each progress line.
    """
    with TemporaryDirectory() as scratch:
        found = find_models(folders) if folders else save_untrained(Path(scratch))
        say(f"answers of {', '.join(found)}")
        threads = torch.get_num_threads()
        try:
            with (
                running(found) as port,
                closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection,
            ):
                cases = _cases(found, connection)
                timings = interleaved(cases, repeats, warm_up=3)
        finally:
            torch.set_num_threads(threads)
    rows = [
        {"case": name, **timing.in_milliseconds(), "worst": 1e3 * max(timing.seconds)}
        for name, timing in timings.items()
    ]
    return {"rows": rows, "fresh": not folders, "at_most": AT_MOST, "machine": describe_machine()}


def as_markdown(result: dict[str, Any]) -> str:
    """Format the result as a table, with the goal for the slowest request."""
    lines = ["| question | median, ms | quartiles | worst |", "|---|---|---|---|"]
    for row in result["rows"]:
        lines.append(
            f"| {row['case']} | {row['median']:.1f} | {row['low']:.1f} to {row['high']:.1f} | {row['worst']:.1f} |"
        )
    slowest = max(result["rows"], key=lambda row: row["median"])
    goal = Goal(f"median ms of the slowest question ({slowest['case']})", result["at_most"], slowest["median"])
    kind = "untrained networks, which take as long as trained ones" if result["fresh"] else "trained networks"
    repeats = result["rows"][0]["repeats"]
    lines += ["", *goals_as_markdown([goal]), ""]
    lines.append(
        f"A stroke is a drawing of {_SIDE}×{_SIDE} sent as a PNG file; the answer has activations, pose, "
        f"reconstruction and agreement map. {repeats} interleaved repeats of each over one connection to 127.0.0.1, "
        f"{kind}; PyTorch on one thread. {machine_line(result['machine'])}."
    )
    return "\n".join(lines) + "\n"


def save_untrained(scratch: Path, names: Collection[str] = ()) -> dict[str, Path]:
    """Save networks with random weights, and return their folders by name.

    Args:
        scratch: where to save them.
        names: which of them; all if empty.
    """
    digits = tuple("0123456789")
    kinds = {
        "small fm": ("resnet-caps-small", 40, {"routing": "fm"}),
        "small dynamic": ("resnet-caps-small", 40, {"routing": "dynamic"}),
        "small em": ("resnet-caps-small", 40, {"routing": "em"}),
        "small pooling": ("resnet-pool-small", 40, {}),
        "full fm": ("resnet-caps", 28, {"routing": "fm"}),
        "capsnet fm": ("capsnet", 28, {"routing": "fm"}),
    }
    folders = {}
    for name in names or kinds:
        model, side, options = kinds[name]
        spec = NetworkSpec(
            model,
            {"num_classes": 10, "image_size": side, **options},
            digits,
            Preparation((side, side), (side, side)),
            "deconv",
        )
        folders[name] = scratch / name
        folders[name].mkdir()
        save_model(folders[name], Network(spec), {})
    return folders


@contextmanager
def running(folders: Mapping[str, Path], measure: bool = False, limits: Limits | None = None) -> Iterator[int]:
    """Run a server in a thread of this process for the duration of a ``with`` block, and give its port.

    Args:
        folders: folders of trained networks, by name.
        measure: whether it measures the sliders of the page in its first seconds.
        limits: bounds of what clients may take; the usual ones if None.
    """
    import uvicorn

    from paircaps.serve.run import create_server, listen

    with listen("127.0.0.1", 0) as listening:
        serving: uvicorn.Server = create_server(folders, "127.0.0.1", (), measure, limits)
        thread = threading.Thread(target=serving.run, args=([listening],), daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            serving.should_exit = True
            thread.join()


def _cases(found: Mapping[str, Path], connection: http.client.HTTPConnection) -> dict[str, Callable[[], object]]:
    """Requests to time, by name."""
    stroke = draw_stroke()
    models = json.loads(_request(connection, "GET", "/api/models"))["models"]
    cases: dict[str, Callable[[], object]] = {}
    for facts in models:
        name = facts["name"]
        cases[f"a stroke, {name}"] = lambda name=name: _post(connection, stroke, name, compare=False)
        pose = json.dumps({"model": name, "class": facts["classes"][0], "pose": facts["pose_low"][0]}).encode()
        if facts["draws"]:
            cases[f"a slider, {name}"] = lambda pose=pose: _request(
                connection, "POST", "/api/draw", pose, "application/json"
            )
    if len(found) > 1:
        first = models[0]["name"]
        cases[f"a stroke, {first} and all {len(found) - 1} others"] = lambda: _post(
            connection, stroke, first, compare=True
        )
    return cases


def draw_stroke() -> bytes:
    """PNG file of a seven as it is drawn on the page."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (_SIDE, _SIDE))
    ImageDraw.Draw(picture).line([(115, 90), (205, 90), (145, 240)], fill="white", width=24, joint="curve")
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def _post(connection: http.client.HTTPConnection, picture: bytes, model: str, *, compare: bool) -> bytes:
    """Send a picture as a multipart form and return the response."""
    body, kind = picture_form(picture, {"model": model, "compare": str(compare).lower()})
    return _request(connection, "POST", "/api/predict", body, kind)


def picture_form(picture: bytes, fields: Mapping[str, str]) -> tuple[bytes, str]:
    """Multipart form with a picture and other fields: its bytes, and its content type."""
    parts = [f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in fields.items()]
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="drawing.png"\r\n\r\n'
    body = "".join(parts).encode() + head.encode() + picture + f"\r\n--{_BOUNDARY}--\r\n".encode()
    return body, f"multipart/form-data; boundary={_BOUNDARY}"


def _request(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None, kind: str | None = None
) -> bytes:
    """Send a request and return the content of the response; any status but 200 is an error."""
    connection.request(method, path, body, {} if kind is None else {"Content-Type": kind})
    response = connection.getresponse()
    content = response.read()
    if response.status != 200:
        raise RuntimeError(f"{path} answered {response.status}: {content[:200]!r}")
    return content
