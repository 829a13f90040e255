"""The application: a page, and the questions it asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import resources
from typing import Annotated, Literal

from fastapi import FastAPI, File, Form, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

import paircaps
from paircaps.errors import PaircapsError
from paircaps.serve.answers import Drawing, Models, PoseToDraw, Prediction, Problem
from paircaps.serve.guard import Guard
from paircaps.serve.networks import Networks, UnknownError

KINDS = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
KINDS |= {"svg": "image/svg+xml"}
PAGES = {"/": "index.html", "/docs": "docs.html"}
FILES = ("page.js", "pad.js", "view.js", "style.css", "docs.js", "icon.svg")

_REFUSED = {
    400: {"model": Problem, "description": "The picture cannot be read, or a number is wrong."},
    403: {"model": Problem, "description": "Asked under a foreign name, or by a page of another site."},
    404: {"model": Problem, "description": "No such model or class."},
    413: {"model": Problem, "description": "Too large."},
    422: {"model": Problem, "description": "A field is missing or of the wrong kind."},
}


def create_app(networks: Networks, hosts: Iterable[str] = (), any_address: bool = False) -> ASGIApp:
    """The application with its guard.

    Args:
        networks: that answer.
        hosts: names that it is known by, beside those of this machine.
        any_address: answer to every numeric address too.
    """
    app = FastAPI(
        title="paircaps",
        version=paircaps.__version__,
        description="Ask trained capsule networks what a picture shows, how it is there, and where they see it.",
        docs_url=None,  # those load scripts from elsewhere; /docs is our own
        redoc_url=None,
    )
    _add_answers(app, networks)
    _add_pages(app)
    _add_errors(app)
    return Guard(app, hosts, any_address)


def _add_answers(app: FastAPI, networks: Networks) -> None:
    @app.get("/api/models", summary="All networks that can be asked")
    def models() -> Models:
        return Models(models=networks.facts())

    @app.post("/api/predict", summary="Say what a picture shows", responses=_REFUSED)  # pyright: ignore[reportArgumentType]
    async def predict(
        file: Annotated[UploadFile, File(description="a PNG, JPEG, BMP or WebP picture of any size")],
        model: Annotated[str | None, Form(description="name of a network; the first unless told")] = None,
        label: Annotated[
            str | None, Form(alias="class", description="look at this class, not at the most active one")
        ] = None,
        fit: Annotated[
            Literal["pad", "crop", "stretch"], Form(description="how a picture of another aspect is fitted")
        ] = "pad",
        invert: Annotated[bool, Form(description="exchange dark and light: dark digits on light paper")] = False,
        compare: Annotated[bool, Form(description="ask all other networks too")] = False,
    ) -> Prediction:
        content = await file.read()
        if not content:
            raise HTTPException(400, "the picture is empty: a file without a byte in it")
        return await run_in_threadpool(networks.predict, content, model, label, fit, invert, compare)

    @app.post("/api/draw", summary="Draw a pose", responses=_REFUSED)  # pyright: ignore[reportArgumentType]
    async def draw(asked: PoseToDraw) -> Drawing:
        return await run_in_threadpool(networks.draw, asked.model, asked.label, asked.pose)


def _add_pages(app: FastAPI) -> None:
    """Files of the page by name, read once: no path that anybody sends is ever looked up on the disk."""
    folder = resources.files("paircaps.serve") / "page"
    for address, name in (PAGES | {f"/{name}": name for name in FILES}).items():
        answer = _file((folder / name).read_bytes(), KINDS[name.rpartition(".")[2]])
        app.add_api_route(address, answer, methods=["GET", "HEAD"], include_in_schema=False)


def _file(content: bytes, kind: str) -> Callable[[], Response]:
    return lambda: Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})


def _add_errors(app: FastAPI) -> None:
    """Every error is one sentence: ``{"detail": "..."}``."""

    @app.exception_handler(UnknownError)
    def unknown(_: Request, error: UnknownError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 404)

    @app.exception_handler(PaircapsError)
    def bad(_: Request, error: PaircapsError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 400)

    @app.exception_handler(RequestValidationError)
    def wrong(_: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"detail": "; ".join(_sentence(one) for one in error.errors())}, 422)

    @app.exception_handler(HTTPException)
    def refused(request: Request, error: HTTPException) -> JSONResponse:
        detail = f"nothing here at {request.url.path[:200]}" if error.status_code == 404 else str(error.detail)
        return JSONResponse({"detail": detail}, error.status_code)


def _sentence(error: dict) -> str:
    """Of one thing that is wrong with a request."""
    place = [str(part) for part in error["loc"] if part != "body"]
    field = ".".join(place) or "the request"
    if error["type"] == "missing" and place == ["file"]:
        return "no picture: send its file in the multipart field 'file'"
    return f"{field}: {error['msg'][:200].lower()}"
