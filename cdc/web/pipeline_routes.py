"""The routes of the process that runs several pipelines: all of them together, and each one below /pipelines/<name>.

/livez, /readyz, /metrics, /status and the overview at / are about all pipelines. A request below /pipelines/<name>, or
with the header `Tailrace-Pipeline`, is passed on to the process of that pipeline, which checks the token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
from starlette.applications import Starlette
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from cdc import __version__
from cdc.config.pipelines import HEADER
from cdc.overview.levels import level_of, worst
from cdc.telemetry.supervised_pipelines import PipelinesMetrics, merged, pipeline_document
from cdc.web.actions_endpoint import BODY_BYTES_MAX
from cdc.web.answers import HEADERS, json_answer, text_answer
from cdc.web.page_routes import page_file, shared_routes
from cdc.web.relay import NoAnswer, fetched, not_running, relayed
from cdc.web.routes import METRICS_TYPE, KnownHosts, failed, method_not_allowed, refused

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from cdc.telemetry.supervised_sinks import View
    from cdc.web.access import Access

_HEADER: Final = HEADER.lower().encode()
_BELOW: Final = "/pipelines/"
_METHODS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]  # the process of the pipeline refuses them


def application(
    views: Callable[[], Sequence[View]], sockets: Mapping[str, str], access: Access, *, on_loopback: bool
) -> ASGIApp:
    """Return the application. `sockets`: the Unix socket of each pipeline by its name."""
    pipelines = _Pipelines(views, sockets)
    routes = [
        Route("/livez", pipelines.livez),
        Route("/readyz", pipelines.readyz),
        Route("/metrics", pipelines.metrics),
        Route("/status", pipelines.status),
        Route("/api/pipelines", pipelines.listed),
        Route("/", partial(page_file, "pipelines.html")),
        Route("/pipelines/{name}", pipelines.to_page),
        Route("/pipelines/{name}/", pipelines.page),
        Route("/pipelines/{name}/{path:path}", pipelines.passed_on, methods=_METHODS),
        *shared_routes(),
    ]
    paths = "/ (the page) /livez /readyz /metrics /status /pipelines/<name>/..."
    unknown = f"unknown path; try {paths}, with <name> one of {', '.join(sockets)}\n"
    handlers: dict[Any, Callable[[Request, Exception], Response]] = {
        HTTPStatus.NOT_FOUND: lambda _request, _error: text_answer(unknown, HTTPStatus.NOT_FOUND),
        HTTPStatus.METHOD_NOT_ALLOWED: method_not_allowed,
        Exception: failed,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return KnownHosts(_ByHeader(app), access, on_loopback=on_loopback)


class _ByHeader:
    """Sends a request with the header to the pipeline that it names, whatever its path is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = next((value for key, value in scope.get("headers", ()) if key == _HEADER), None)
        if name is not None and not scope["path"].startswith(_BELOW):
            prefix = _BELOW + quote(name.decode("latin-1"), safe="")
            raw = prefix.encode() + scope["raw_path"]
            scope = {**scope, "path": _BELOW + name.decode("latin-1") + scope["path"], "raw_path": raw}
        await self._app(scope, receive, send)


class _Pipelines:
    """Used in the event loop only; the processes are asked at the same time."""

    def __init__(self, views: Callable[[], Sequence[View]], sockets: Mapping[str, str]) -> None:
        self._views = views
        self._sockets = sockets
        self._own = PipelinesMetrics()

    async def livez(self, request: Request) -> Response:
        return refused(request) or text_answer("ok\n")

    async def readyz(self, request: Request) -> Response:
        """Answer 200 if every pipeline answers 200."""
        found = await self._all("/readyz")
        states = {view.name: view.state for view in self._views()}
        texts = {name: found[name][1].decode().strip() if name in found else states[name] for name in states}
        ready = all(name in found and found[name][0] == HTTPStatus.OK for name in states)
        said = ", ".join(f"{name} {text}" for name, text in texts.items())
        return refused(request) or text_answer(f"{said}\n", HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)

    async def metrics(self, request: Request) -> Response:
        pages = {name: body for name, (code, body) in (await self._all("/metrics")).items() if code == HTTPStatus.OK}
        self._own.update(self._views(), pages)
        page = await asyncio.to_thread(merged, self._own.render(), pages)
        return refused(request) or Response(page, headers=HEADERS | {"Content-Type": METRICS_TYPE})

    async def status(self, request: Request) -> Response:
        answers = await self._all("/status")
        found = {name: msgspec.json.decode(body) for name, (code, body) in answers.items() if code == HTTPStatus.OK}
        documents = {view.name: {**pipeline_document(view), "status": found.get(view.name)} for view in self._views()}
        level = worst(level_of(one["state"]) for one in documents.values())
        return refused(request) or json_answer({"level": level, "pipelines": documents})

    async def listed(self, request: Request) -> Response:
        """Return what the overview shows; asks no process."""
        documents = [
            {"name": view.name, "level": level_of(view.state), **pipeline_document(view)} for view in self._views()
        ]
        return refused(request) or json_answer({"version": __version__, "pipelines": documents})

    async def to_page(self, request: Request) -> Response:
        name = request.path_params["name"]
        return self._unknown(name) or RedirectResponse(f"{_BELOW}{name}/", headers=HEADERS)

    async def page(self, request: Request) -> Response:
        return self._unknown(request.path_params["name"]) or await page_file("index.html", request)

    async def passed_on(self, request: Request) -> Response:
        name = request.path_params["name"]
        unknown = self._unknown(name)
        if unknown is not None:
            return unknown
        raw: bytes = request.scope["raw_path"].removeprefix(f"{_BELOW}{name}".encode())
        query: bytes = request.scope["query_string"]
        try:
            return await relayed(request, self._sockets[name], raw + (b"?" + query if query else b""), BODY_BYTES_MAX)
        except NoAnswer as error:
            return self._not_running(name, str(error))

    def _not_running(self, name: str, said: str) -> Response:
        view = next(one for one in self._views() if one.name == name)
        error = view.document()["error"] or {}
        message = f": {error['message']}" if error.get("message") else ""
        return not_running(
            name, f"{view.state}{message or f' ({said})'}", hint=error.get("hint", ""), command=error.get("command", "")
        )

    def _unknown(self, name: str) -> Response | None:
        if name in self._sockets:
            return None
        said = f"unknown pipeline {name!r}; configured: {', '.join(self._sockets)}"
        return json_answer({"error": said}, HTTPStatus.NOT_FOUND)

    async def _all(self, target: str) -> dict[str, tuple[int, bytes]]:
        """Return the answers of the processes that answer."""

        async def one(name: str, socket: str) -> tuple[str, tuple[int, bytes] | None]:
            try:
                return name, await fetched(socket, target)
            except NoAnswer:
                return name, None

        found = await asyncio.gather(*(one(*item) for item in self._sockets.items()))
        return {name: answer for name, answer in found if answer is not None}
