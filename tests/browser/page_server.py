"""Serves the files of the page and documents that a test chooses, as the server of capture does."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tests.browser import documents
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

PAGE: Final = Path(__file__).parents[2] / "cdc" / "web" / "page"
CSP: Final = "default-src 'self'"
TOKEN: Final = "test-token"
_HEADERS: Final = {"Content-Security-Policy": CSP, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}

Answer = dict[str, Any] | Callable[[dict[str, str], bool], dict[str, Any]]
"""A document, or a function of the query and whether the request has the token."""


@dataclass(slots=True)
class Failure:
    """An error that is answered instead of a document."""

    code: int
    document: dict[str, Any]


@dataclass(slots=True)
class Asked:
    """A request that the page sent."""

    method: str
    path: str
    query: dict[str, str]
    token: str
    body: Any


@dataclass(slots=True)
class PageSite:
    """What the server answers; a test changes it while the page is open.

    answers    by path
    failures   by path, before answers
    delays_s   by path
    stream     open: events are sent; silent: connections stay without events; a code: streams are refused
    """

    base: str = ""
    token: str = TOKEN
    answers: dict[str, Answer] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    delays_s: dict[str, float] = field(default_factory=dict)
    stream: str | int = "open"
    every_s: float = 0.1
    asked: list[Asked] = field(default_factory=list)
    stopping: bool = False

    def reset(self) -> None:
        """Answer as if everything were well."""
        listed = documents.tables()
        self.token, self.stream, self.every_s = TOKEN, "open", 0.1
        self.failures, self.delays_s, self.asked = {}, {}, []
        self.answers = {
            "/api/picture": documents.picture(),
            "/api/history": documents.history(),
            "/api/tables": lambda query, _: documents.page_of(listed, "tables", query),
            "/api/table": documents.table_details(),
            "/api/topics": lambda query, _: documents.page_of(documents.topics(), "topics", query),
            "/api/sinks": documents.sinks(),
            "/api/lakes": documents.lakes(),
            "/api/lineage": documents.lineage(),
            "/api/dead-letters": lambda _, authorised: documents.dead_letters(keys=authorised),
            "/api/events": lambda query, authorised: documents.events(query.get("cursor", ""), values=authorised),
            "/api/key": lambda _, __: {"events": [documents.event(7, "c"), documents.event(7)]},
            "/api/findings": documents.findings(),
            "/api/why": documents.why(),
            "/api/alarms": documents.alarms(),
            "/api/config": documents.settings(),
            "/actions": documents.actions(),
        }

    def posted(self) -> list[Any]:
        """Bodies of the actions that the page sent."""
        return [one.body for one in self.asked if one.method == "POST"]

    async def index(self, _request: Request) -> Response:
        return FileResponse(PAGE / "index.html", headers=_HEADERS)

    async def session(self, request: Request) -> Response:
        await self._note(request)
        given = request.headers.get("Authorization", "")
        token = "none" if not given else "valid" if self._authorised(request) else "wrong"
        found = {"name": "shop", "version": "0.1.0", "token": token, "token_configured": bool(self.token)}
        return JSONResponse(found, headers=_HEADERS)

    async def document(self, request: Request) -> Response:
        path = request.url.path
        await self._note(request)
        await asyncio.sleep(self.delays_s.get(path, 0.0))
        if (failure := self.failures.get(path)) is not None:
            return JSONResponse(failure.document, failure.code, headers=_HEADERS)
        authorised = self._authorised(request)
        given = bool(request.headers.get("Authorization"))
        if (given or path in {"/actions", "/api/key"}) and not authorised:
            return JSONResponse({"error": "expected Authorization: Bearer TOKEN"}, 401, headers=_HEADERS)
        if request.method == "POST":
            found = {
                "action": self.asked[-1].body["action"],
                "result": "done",
                "recorded": True,
                "facts": {"workers": 2},
            }
            return JSONResponse(found, headers=_HEADERS)
        answer = self.answers[path]
        return JSONResponse(
            answer(dict(request.query_params), authorised) if callable(answer) else answer, headers=_HEADERS
        )

    async def events(self, request: Request) -> Response:
        await self._note(request)
        if isinstance(self.stream, int):
            return JSONResponse({"error": "32 streams are open"}, self.stream, headers=_HEADERS)
        return StreamingResponse(self._events(), media_type="text/event-stream", headers=_HEADERS)

    async def _events(self) -> AsyncIterator[bytes]:
        yield b"retry: 1000\n\n"
        while not self.stopping:
            if self.stream == "open":
                answer = self.answers["/api/picture"]
                assert isinstance(answer, dict)
                yield f"event: picture\ndata: {json.dumps(answer | {'at': documents.at()})}\n\n".encode()
            await asyncio.sleep(self.every_s)

    def _authorised(self, request: Request) -> bool:
        return bool(self.token) and request.headers.get("Authorization", "") == f"Bearer {self.token}"

    async def _note(self, request: Request) -> None:
        body = await request.body()
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        query = dict(request.query_params)
        self.asked.append(Asked(request.method, request.url.path, query, token, json.loads(body) if body else None))


@contextmanager
def serving(site: PageSite | None = None, port: int = 0) -> Iterator[PageSite]:
    """A server of loopback on this port, or on a free one. A site that is given keeps its answers."""
    if site is None:
        site = PageSite()
        site.reset()
    site.stopping = False
    routes = [
        Route("/", site.index),
        Route("/api/stream", site.events),
        Route("/api/session", site.session),
        *(Route(path, site.document, methods=["GET", "POST"]) for path in site.answers),
        Mount("/page", _Assets(directory=PAGE)),
    ]
    server = uvicorn.Server(
        uvicorn.Config(
            Starlette(routes=routes),
            port=port,
            log_level="critical",
            lifespan="off",
            timeout_graceful_shutdown=1,
            ws="none",
        )
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started, "the server of the page listens")
        site.base = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        yield site
    finally:
        site.stopping = True
        server.should_exit = True
        thread.join()


class _Assets(StaticFiles):
    """The files of the page, with the headers of the server."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        found = super().file_response(*args, **kwargs)
        found.headers.update(_HEADERS)
        return found
