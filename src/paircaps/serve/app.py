"""Web application: the page, its JSON interface, and error responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import resources
from typing import Annotated, get_args

from fastapi import FastAPI, File, Form, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import WithJsonSchema
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

import paircaps
from paircaps.errors import PaircapsError
from paircaps.pictures import Fit
from paircaps.serve.limits import Limits
from paircaps.serve.middleware import RequestGuard
from paircaps.serve.networks import Networks
from paircaps.serve.schemas import Drawing, Models, PoseToDraw, PredictionResponse, Problem
from paircaps.serve.served import UnknownNameError

CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
"""Content types by the suffix of a file."""

PAGES = {"/": "index.html", "/docs": "docs.html"}
"""Files of the page by path; all others have their own name as path."""

FILES = (
    "page.js",
    "answers.js",
    "pad.js",
    "view.js",
    "sliders.js",
    "snapshot.js",
    "words.js",
    "style.css",
    "docs.js",
    "icon.svg",
)

# Fields of a form that may be missing. A form has no null: the schema must not allow it, as it would for None.
_Text = Annotated[str | None, WithJsonSchema({"type": "string"})]
_Fit = Annotated[Fit | None, WithJsonSchema({"type": "string", "enum": list(get_args(Fit))})]
_Flag = Annotated[bool | None, WithJsonSchema({"type": "boolean"})]

_ERRORS = {
    400: {
        "model": Problem,
        "description": "The picture cannot be read or would take too much memory, or a value is not allowed.",
    },
    403: {"model": Problem, "description": "The Host or Origin header names another site."},
    404: {"model": Problem, "description": "No such model or class."},
    408: {"model": Problem, "description": "The request was not complete in time."},
    413: {"model": Problem, "description": "The request is too large."},
    422: {"model": Problem, "description": "A field is missing or of the wrong type."},
    503: {"model": Problem, "description": "There are too many requests at the same time."},
}


def create_app(
    networks: Networks, hosts: Iterable[str] = (), any_address: bool = False, limits: Limits | None = None
) -> ASGIApp:
    """Build the application, with the checks of :mod:`paircaps.serve.middleware` around it.

    Args:
        networks: networks that answer requests.
        hosts: host names of this server that requests may use, besides those of this machine.
        any_address: whether requests may use any numeric address too.
        limits: bounds of the server; the usual ones if None.
    """
    limits = limits or Limits()
    app = FastAPI(
        title="paircaps",
        version=paircaps.__version__,
        description="Predictions of trained capsule networks: class of a picture, pose, and origin of the agreement.",
        docs_url=None,  # FastAPI's pages load scripts from other sites; /docs is our own
        redoc_url=None,
    )
    _add_interface(app, networks, limits)
    _add_pages(app)
    _add_errors(app)
    return RequestGuard(app, limits, hosts, any_address)


def _add_interface(app: FastAPI, networks: Networks, limits: Limits) -> None:
    """Add the calls of the JSON interface."""
    without_body = {status: _ERRORS[status] for status in (403, 413, 503)}

    @app.get("/api/models", summary="List all networks", responses=without_body)  # pyright: ignore[reportArgumentType]
    async def models() -> Models:
        return Models(models=networks.facts, largest=limits.largest - limits.small)

    @app.post(
        "/api/predict",
        summary="Predict the class of a picture",
        description=f"A request has at most {limits.largest >> 20} MB.",
        responses=_ERRORS,  # pyright: ignore[reportArgumentType]
    )
    async def predict(
        request: Request,
        file: Annotated[
            UploadFile,
            File(description="PNG, JPEG, BMP or WebP picture", json_schema_extra={"minLength": 1}),
        ],
        model: Annotated[_Text, Form(description="name of a network; the first one if not given")] = None,
        label: Annotated[
            _Text,
            Form(
                alias="class",
                description="class whose pose and agreement are returned; the most active one if not given",
            ),
        ] = None,
        fit: Annotated[
            _Fit,
            Form(description="how a picture of another aspect ratio is fitted; as in the training if not given"),
        ] = None,
        invert: Annotated[
            _Flag,
            Form(
                description="exchange dark and light or not; if not given, networks of light digits on dark ground "
                "invert pictures that are light at their edges"
            ),
        ] = None,
        compare: Annotated[bool, Form(description="return the predictions of all other networks too")] = False,
    ) -> PredictionResponse:
        if len((await request.form()).getlist("file")) > 1:
            raise HTTPException(400, "one picture at a time: there are several fields 'file'")
        content = await file.read()
        if not content:
            raise HTTPException(400, "the picture is empty: a file without a byte in it")
        return await networks.run(networks.predict, content, model, label, fit, invert, compare)

    @app.post("/api/draw", summary="Draw a pose", responses=_ERRORS)  # pyright: ignore[reportArgumentType]
    async def draw(requested: PoseToDraw) -> Drawing:
        return await networks.run(networks.draw, requested.model, requested.label, requested.pose)


def _add_pages(app: FastAPI) -> None:
    """Add the files of the page, read once by name: no path of a request is ever looked up on the disk."""
    folder = resources.files("paircaps.serve") / "page"
    for address, name in (PAGES | {f"/{name}": name for name in FILES}).items():
        respond = _file_response((folder / name).read_bytes(), CONTENT_TYPES[name.rpartition(".")[2]])
        app.add_api_route(address, respond, methods=["GET", "HEAD"], include_in_schema=False)


def _file_response(content: bytes, content_type: str) -> Callable[[], Response]:
    """Return a function that responds with a file."""
    return lambda: Response(content, media_type=content_type, headers={"Cache-Control": "no-cache"})


def _add_errors(app: FastAPI) -> None:
    """Add error handlers; every error response is one sentence: ``{"detail": "..."}``."""

    @app.exception_handler(UnknownNameError)
    def unknown(_: Request, error: UnknownNameError) -> JSONResponse:
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
        if "error parsing the body" in detail:  # FastAPI's message, which does not say what to do
            detail = "the request cannot be read: is it a form with the boundary that its header names?"
        return JSONResponse({"detail": detail}, error.status_code, headers=error.headers)


def _sentence(error: dict) -> str:
    """Sentence that describes the first validation error of a request."""
    place = [str(part)[:80] for part in error["loc"] if part != "body"]
    if error["type"] == "json_invalid":
        return f"the request is no JSON, from its character {place[0] if place else 0} on"
    if place == ["file"]:
        return "no picture: send its file in the multipart field 'file'"
    said = error["msg"][:200]
    return f"{'.'.join(place) or 'the request'}: {said[:1].lower()}{said[1:]}"
