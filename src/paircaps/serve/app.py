"""The application: a page, and the questions it asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import resources
from typing import Annotated

from fastapi import FastAPI, File, Form, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

import paircaps
from paircaps.data.pictures import Fit
from paircaps.errors import PaircapsError
from paircaps.serve.middleware import LARGEST, Guard
from paircaps.serve.networks import Networks, UnknownError
from paircaps.serve.schemas import Drawing, Models, PoseToDraw, PredictionResponse, Problem

KINDS = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
KINDS |= {"svg": "image/svg+xml"}
PAGES = {"/": "index.html", "/docs": "docs.html"}
FILES = ("page.js", "pad.js", "view.js", "style.css", "docs.js", "icon.svg")

_REFUSED = {
    400: {
        "model": Problem,
        "description": "The picture cannot be read or would unpack to too much, or a number is wrong.",
    },
    403: {"model": Problem, "description": "Asked under a foreign name, or by a page of another site."},
    404: {"model": Problem, "description": "No such model or class."},
    408: {"model": Problem, "description": "The request did not come to its end."},
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
    async def models() -> Models:
        return Models(models=networks.facts)

    @app.post("/api/predict", summary="Say what a picture shows", responses=_REFUSED)  # pyright: ignore[reportArgumentType]
    async def predict(
        request: Request,
        file: Annotated[
            UploadFile, File(description=f"a PNG, JPEG, BMP or WebP picture of at most {LARGEST >> 20} MB; see 400")
        ],
        model: Annotated[str | None, Form(description="name of a network; the first unless told")] = None,
        label: Annotated[
            str | None, Form(alias="class", description="look at this class, not at the most active one")
        ] = None,
        fit: Annotated[Fit, Form(description="how a picture of another aspect is fitted")] = "pad",
        invert: Annotated[bool, Form(description="exchange dark and light: dark digits on light paper")] = False,
        compare: Annotated[bool, Form(description="ask all other networks too")] = False,
    ) -> PredictionResponse:
        if len((await request.form()).getlist("file")) > 1:
            raise HTTPException(400, "one picture at a time: there are several fields 'file'")
        content = await file.read()
        if not content:
            raise HTTPException(400, "the picture is empty: a file without a byte in it")
        return await networks.work(networks.predict, content, model, label, fit, invert, compare)

    @app.post("/api/draw", summary="Draw a pose", responses=_REFUSED)  # pyright: ignore[reportArgumentType]
    async def draw(asked: PoseToDraw) -> Drawing:
        return await networks.work(networks.draw, asked.model, asked.label, asked.pose)


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
        return JSONResponse({"detail": _sentence(error.errors()[0])}, 422)

    @app.exception_handler(HTTPException)
    def refused(request: Request, error: HTTPException) -> JSONResponse:
        own = {
            404: f"nothing here at {request.url.path[:200]}",
            405: f"{request.method} is not answered at {request.url.path[:200]}",
        }
        detail = own.get(error.status_code, str(error.detail))
        if "error parsing the body" in detail:  # FastAPI's words
            detail = "the request cannot be read: is it a form with the boundary that its header names?"
        return JSONResponse({"detail": detail}, error.status_code, headers=error.headers)


def _sentence(error: dict) -> str:
    """Of the first thing that is wrong with a request."""
    place = [str(part)[:80] for part in error["loc"] if part != "body"]
    if error["type"] == "json_invalid":
        return f"the request is no JSON, from its character {place[0] if place else 0} on"
    if place == ["file"]:
        return "no picture: send its file in the multipart field 'file'"
    said = error["msg"][:200]
    return f"{'.'.join(place) or 'the request'}: {said[:1].lower()}{said[1:]}"
