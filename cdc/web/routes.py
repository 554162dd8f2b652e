"""The routes of capture and sinks: /livez, /readyz, /metrics, /status, /sinks/<sink>/wait, /openapi.json and /actions.

Only /actions changes anything; a sink performs only those on its own process. Only capture has the live page at / with
/api.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route

from cdc.telemetry import log
from cdc.web.actions_endpoint import BODY_BYTES_MAX, RUNNING_MAX, refusal
from cdc.web.answers import HEADERS, body_of, json_answer, query_of, text_answer, too_long
from cdc.web.openapi import document
from cdc.web.page_routes import documents, page_routes
from cdc.web.wait_endpoint import WAITING_MAX, WaitRoute, error_answer, unknown_parameter

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from cdc.overview.desk import Desk
    from cdc.telemetry.exposition import Rendered, Reported
    from cdc.web.access import Access
    from cdc.web.actions_endpoint import ActionsRoute
    from cdc.web.wait_endpoint import Answer

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def application(
    status: Reported,
    metrics: Rendered,
    waits: WaitRoute | None,
    access: Access,
    *,
    on_loopback: bool,
    actions: ActionsRoute | None = None,
    desk: Desk | None = None,
) -> ASGIApp:
    """Return the application. Without `waits`, `actions` or `desk` it has no route for them."""
    sinks = waits.sinks if waits is not None else None
    described = document(sinks, actions=actions is not None, page=[] if desk is None else documents(desk))
    endpoints = _Endpoints(status, metrics, waits, access, described=described)
    routes = [
        Route("/livez", endpoints.livez),
        Route("/readyz", endpoints.readyz),
        Route("/metrics", endpoints.metrics),
        Route("/status", endpoints.status),
        Route("/openapi.json", endpoints.openapi),
    ]
    if waits is not None:
        routes.append(Route("/sinks/{sink}/wait", endpoints.wait))
    if actions is not None:
        routes.append(Route("/actions", _Actions(actions, access).answer, methods=["GET", "POST"]))
    pages = [] if desk is None else page_routes(desk, access)
    paths = (["/ (the page)"] if pages else []) + [
        route.path.replace("{sink}/wait", "<sink>/wait?lsn=X/Y") for route in routes
    ]
    shown = " ".join(paths)
    unknown = f"unknown path; try {shown}\n"
    handlers: dict[Any, Callable[[Request, Exception], Response]] = {
        HTTPStatus.NOT_FOUND: lambda _request, _error: text_answer(unknown, HTTPStatus.NOT_FOUND),
        HTTPStatus.METHOD_NOT_ALLOWED: method_not_allowed,
        Exception: failed,
    }
    app = Starlette(routes=[*routes, *pages], exception_handlers=handlers)
    app.router.redirect_slashes = False
    return KnownHosts(app, access, on_loopback=on_loopback)


class KnownHosts:
    """Answers 421 to a request for another host."""

    def __init__(self, app: ASGIApp, access: Access, *, on_loopback: bool) -> None:
        self._app = app
        self._accepts = partial(access.accepts, on_loopback=on_loopback)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See starlette.types.ASGIApp."""
        host = next((value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"host"), "")
        if scope["type"] != "http" or self._accepts(host):
            await self._app(scope, receive, send)
            return
        said = f"this server does not answer for the host {host!r}; add its name to http.hosts"
        await json_answer({"error": said}, HTTPStatus.MISDIRECTED_REQUEST)(scope, receive, send)


class _Endpoints:
    """State and metrics are read in threads: a lock that is held for long must not stop /livez."""

    def __init__(
        self, status: Reported, metrics: Rendered, waits: WaitRoute | None, access: Access, *, described: object
    ) -> None:
        self._status = status
        self._metrics = metrics
        self._waits = waits
        self._access = access
        self._described = described
        self._waiting: CapacityLimiter | None = None  # made in the event loop

    async def livez(self, request: Request) -> Response:
        return refused(request) or text_answer("ok\n")

    async def readyz(self, request: Request) -> Response:
        return await _answered(request, self._ready)

    def _ready(self) -> Response:
        code = HTTPStatus.OK if self._status.ready else HTTPStatus.SERVICE_UNAVAILABLE
        return text_answer(f"{self._status.state}\n", code)

    async def metrics(self, request: Request) -> Response:
        kind = HEADERS | {"Content-Type": METRICS_TYPE}
        return await _answered(request, lambda: Response(self._metrics.render(), headers=kind))

    async def status(self, request: Request) -> Response:
        return await _answered(request, lambda: json_answer(self._status.snapshot()))

    async def openapi(self, request: Request) -> Response:
        return refused(request) or json_answer(self._described)

    async def wait(self, request: Request) -> Response:
        given = request.headers.get("Authorization", "")
        authorised = self._access.is_authorised(given)
        if given and not authorised and self._access.token:
            return json_answer({"error": "the bearer token does not match http.token"}, HTTPStatus.UNAUTHORIZED)
        assert self._waits is not None
        if self._waiting is None:
            self._waiting = CapacityLimiter(2 * WAITING_MAX)  # those that are refused need a thread for a moment
        answer = partial(self._waits.answer, request.path_params["sink"], query_of(request), authorised=authorised)
        found = await to_thread.run_sync(answer, abandon_on_cancel=True, limiter=self._waiting)
        return json_answer(found.document, found.code)


class _Actions:
    """Performs and lists actions, for requests with the bearer token."""

    def __init__(self, actions: ActionsRoute, access: Access) -> None:
        self._actions = actions
        self._access = access
        self._threads: CapacityLimiter | None = None  # made in the event loop
        self._running = 0

    async def answer(self, request: Request) -> Response:
        authorised = self._access.is_authorised(request.headers.get("Authorization", ""))
        denied = refusal(configured=bool(self._access.token), authorised=authorised)
        if denied is not None:
            return _with_challenge(denied)
        if request.method != "POST":
            return await self._in_thread(partial(self._actions.listed, query_of(request)))
        if (wrong := refused(request)) is not None:
            return wrong
        kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return json_answer({"error": "expected Content-Type: application/json"}, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        try:
            body = await body_of(request, BODY_BYTES_MAX)
        except ClientDisconnect:
            return json_answer({"error": "the body is incomplete"}, HTTPStatus.BAD_REQUEST)
        if body is None:
            return too_long(BODY_BYTES_MAX)
        client = f"{request.client.host}:{request.client.port}" if request.client is not None else "unknown"
        return await self._in_thread(partial(self._actions.performed, body, client))

    async def _in_thread(self, answer: Callable[[], Answer]) -> Response:
        # A request that waits for its turn could act long after its client has left.
        if self._running >= RUNNING_MAX:
            said = f"{RUNNING_MAX} requests to /actions are already running; try again later"
            return json_answer({"error": said}, HTTPStatus.SERVICE_UNAVAILABLE)
        if self._threads is None:
            self._threads = CapacityLimiter(RUNNING_MAX)
        self._running += 1
        try:
            found = await to_thread.run_sync(answer, abandon_on_cancel=True, limiter=self._threads)
        finally:
            self._running -= 1
        return json_answer(found.document, found.code)


def _with_challenge(found: Answer) -> Response:
    answer = json_answer(found.document, found.code)
    if found.code is HTTPStatus.UNAUTHORIZED:
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


async def _answered(request: Request, answer: Callable[[], Response]) -> Response:
    wrong = refused(request)
    return wrong if wrong is not None else await to_thread.run_sync(answer, abandon_on_cancel=True)


def refused(request: Request) -> Response | None:
    """Return the answer to a query on a path that has no parameters."""
    query = query_of(request)
    wrong = unknown_parameter(query, ()) if query else ""
    return json_answer(error_answer(HTTPStatus.BAD_REQUEST, wrong).document, HTTPStatus.BAD_REQUEST) if wrong else None


def method_not_allowed(request: Request, error: Exception) -> Response:
    """Return the answer to an unknown method; names the known ones."""
    allowed = getattr(error, "headers", None) or {}
    methods = sorted({*allowed.get("Allow", "GET").split(", ")} - {"HEAD"})
    said = f"{request.method} is not known here; use {' or '.join(methods)}"
    answer = json_answer({"error": said}, HTTPStatus.METHOD_NOT_ALLOWED)
    answer.headers.update(allowed)
    return answer


def failed(_request: Request, error: Exception) -> Response:
    """Return the answer to a request that failed with an unexpected error, which is logged."""
    log.get().error("http_request_failed", error=log.origin(error))
    said = {"error": f"the request failed with {type(error).__name__}; the log has its origin"}
    return json_answer(said, HTTPStatus.INTERNAL_SERVER_ERROR)
