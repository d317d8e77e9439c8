"""The routes of the service."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException as RoutingError

from gpatcher import __version__
from gpatcher.errors import InputError, counted, some
from gpatcher.serve.desk import Desk, Kept
from gpatcher.serve.guard import Guard, Limits
from gpatcher.serve.metrics import CONTENT_TYPE, Metrics
from gpatcher.serve.pages import lookup_page, reference_page
from gpatcher.serve.run import ServedRun, UnknownNodeError, with_notes
from gpatcher.serve.schema import PredictRequest, PredictResponse

_DESCRIPTION = (
    "Classes, calibrated probabilities and explanations of the nodes of one trained run, and of unseen nodes. The "
    "answers are those of the commands gpatcher predict and gpatcher explain. Errors have one field, detail."
)
_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The values cannot be used; the message names the value, its place and a way out."},
    401: {"description": "The service needs a token, which is missing or wrong."},
    404: {"description": "There is no node with this id."},
    413: {"description": "The body is too large, or there are too many nodes in it."},
    422: {"description": "The body is no JSON, or has other fields than these."},
    503: {"description": "The request took too long, or too many others wait."},
}
# what the framework says, in other words
_DETAILS = {
    "Not Found": "there is nothing at this path; /docs lists what there is",
    "Method Not Allowed": "this path takes another method; /docs lists what there is",
    "There was an error parsing the body": "the body cannot be read as JSON: it is nested too deeply, or has a "
    "number of thousands of digits",
}


def make_app(
    run: ServedRun, limits: Limits, token: str | None, metrics: Metrics, abandon: Callable[[], None] = lambda: None
) -> Guard:
    """Return the application.

    Parameters
    ----------
    run : ServedRun
    limits : Limits
    token : str or None
        Digest of the token that requests need.
    metrics : Metrics
    abandon : callable
        Called at the end if something that nobody waits for is still computed.
    """
    # explanations of a portfolio may take a minute, and predictions must not wait for them
    desks = (
        Desk(limits, "send fewer nodes at a time, or start the service with a larger --timeout"),
        Desk(limits, "the explanation is still being made: ask again later"),
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        run.known.start()
        yield
        run.known.close()
        for desk in desks:
            desk.close()
        if any(desk.busy for desk in desks):
            abandon()

    app = FastAPI(
        title="gpatcher",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        # for the reference: the guard compares the token, before the body is read
        dependencies=[] if token is None else [Depends(HTTPBearer(auto_error=False))],
    )
    app.add_exception_handler(InputError, _input_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(RoutingError, _http_error)
    app.add_exception_handler(Exception, _failure)
    _add_predictions(app, run, limits, desks[0], metrics)
    _add_explanations(app, run, desks[1])
    _add_pages(app, run, token, metrics)
    return Guard(app, limits, token, metrics)


def _add_predictions(app: FastAPI, run: ServedRun, limits: Limits, desk: Desk, metrics: Metrics) -> None:
    @app.post("/predict", summary="Predict nodes", response_model=PredictResponse, responses=_ERRORS)
    async def predict(asked: PredictRequest, request: Request) -> Response:
        """Return class and probabilities of nodes of the graph, or of unseen nodes; unknown values may be null."""
        count = len(asked.ids or asked.nodes or ())
        if count > limits.nodes:
            raise HTTPException(
                413,
                f"{counted(count, 'node')} in one request, at most {limits.nodes:,} are answered; send several "
                "requests, or start the service with a larger --max-nodes",
            )
        work: tuple[Any, ...] = (run.predict_known, asked.ids, asked.conformal)
        if asked.ids is None:
            work = (run.predict_unseen, asked.nodes, asked.edges, asked.conformal)
        rows, notes = await desk.run(request, with_notes, *work)
        metrics.count_nodes("known" if asked.ids is not None else "unseen", count)
        return _json({"nodes": rows, "notes": notes})


def _add_explanations(app: FastAPI, run: ServedRun, desk: Desk) -> None:
    explained = Kept(lambda id: _bytes(run.explain(id)))

    @app.get(
        "/explain/{id:path}",
        summary="Explain a node",
        responses={code: _ERRORS[code] for code in (401, 404, 503)},
        response_class=Response,
    )
    async def explain(id: Annotated[str, "as text"], request: Request) -> Response:
        """Return why a node of the graph got its class: sentences, its own columns, the members of its patch."""
        return Response(await desk.run(request, explained, id), media_type="application/json")


def _add_pages(app: FastAPI, run: ServedRun, token: str | None, metrics: Metrics) -> None:
    # who has no token learns nothing about the run
    shown = (run.graph.name, run.classes) if token is None else (None, ())
    page = lookup_page(*shown, numbers=run.has_numbers)

    @app.get("/", include_in_schema=False)
    async def index() -> HTMLResponse:
        return HTMLResponse(page)

    @app.get("/docs", include_in_schema=False)
    async def reference() -> HTMLResponse:
        return HTMLResponse(reference_page(app.openapi()))

    @app.get("/health", summary="Say whether the service works")
    async def health() -> dict[str, str]:
        """Return at once, whatever else is computed; needs no token."""
        return {"status": "ok", "version": __version__}

    @app.get("/metrics", summary="Count requests", response_class=PlainTextResponse, responses={401: _ERRORS[401]})
    async def counts() -> Response:
        """Return counts and times of requests in the text format of Prometheus, of all workers together."""
        labels = {"run": run.graph.name, "model": run.classifier.kind, "nodes": run.graph.n, "version": __version__}
        return Response(metrics.text(labels, run.known.ready), media_type=CONTENT_TYPE)


def _bytes(content: Any) -> bytes:
    return json.dumps(content, allow_nan=False, default=str).encode()  # ids may be dates


def _json(content: Any, status: int = 200) -> Response:
    return Response(_bytes(content), status, media_type="application/json")


async def _input_error(_: Request, error: Exception) -> Response:
    return _json({"detail": str(error)}, 404 if isinstance(error, UnknownNodeError) else 400)


async def _validation_error(_: Request, error: Exception) -> Response:
    found = error.errors() if isinstance(error, RequestValidationError) else ()
    return _json({"detail": some(_problem(one) for one in found)}, 422)


def _problem(found: dict[str, Any]) -> str:
    """Return what pydantic found wrong with a body, and where."""
    place = ".".join(str(part) for part in found["loc"][1:])
    match found["type"]:
        case "json_invalid":
            return f"the body is not JSON ({found['ctx']['error']} at character {place})"
        case "extra_forbidden":
            return f"{place!r} is no field of the body; its fields are {', '.join(PredictRequest.model_fields)}"
        case "missing" | "model_attributes_type":
            return "the body must be a JSON object, sent with the header 'Content-Type: application/json'"
        case "value_error":
            return str(found["ctx"]["error"])
        case _:
            return f"{place}: {found['msg']}"


async def _http_error(_: Request, error: Exception) -> Response:
    status, detail = getattr(error, "status_code", 500), str(getattr(error, "detail", ""))
    return _json({"detail": _DETAILS.get(detail, detail)}, status)


async def _failure(_: Request, error: Exception) -> Response:
    return _json({"detail": f"the service failed ({type(error).__name__}); its log has the details"}, 500)
