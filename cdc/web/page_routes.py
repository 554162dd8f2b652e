"""The live page: its files, the documents that it shows, and the stream of the picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anyio import CapacityLimiter, to_thread
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from cdc import __version__
from cdc.errors import TailraceError, UsageError
from cdc.overview.event_tail import LIMIT_MAX
from cdc.overview.known_tables import STATES
from cdc.web import manual
from cdc.web.answers import HEADERS, json_answer, query_of
from cdc.web.page_parameters import Parameter, values_of
from cdc.web.page_stream import PictureStream

if TYPE_CHECKING:
    from starlette.requests import Request

    from cdc.overview.desk import Desk
    from cdc.web.access import Access

FILES: Final = Path(__file__).parent / "page"
RUNNING_MAX: Final = 8
WAITING_MAX: Final = 64
"""Requests that are running or wait for their turn; further ones are refused: Kafka may not answer for seconds."""

_OFFSET_MAX: Final = 10_000_000
_ROWS_MAX: Final = 1000
_KEY_MAX: Final = 700
_OFFSET: Final = Parameter("how many rows to skip", 0, most=_OFFSET_MAX)
_LIMIT: Final = Parameter("how many rows to return", 100, least=1, most=_ROWS_MAX)
_SEARCH: Final = Parameter("only names that contain this text")
_POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'"
)
_OF_PAGE: Final = HEADERS | {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class PageDocument:
    """A document of the page.

    Attributes:
        path: below /api/.
        says: what it is, for OpenAPI.
        answer: computes it; gets the parameters, and `authorised` if `shows_values`.
        shows_values: it shows more to requests with the token.
        needs_token: it is shown only to requests with the token.
    """

    path: str
    says: str
    answer: Callable[..., dict[str, Any]]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    shows_values: bool = False
    needs_token: bool = False


def documents(desk: Desk) -> list[PageDocument]:
    """Return all documents but the stream."""
    listed = {"search": _SEARCH, "offset": _OFFSET, "limit": _LIMIT}
    state = Parameter(f"only tables in this state: {', '.join(STATES)}", "all")
    events = {
        "tables": Parameter("names or shell patterns of tables, separated by commas", length=300),
        "ops": Parameter("operations, separated by commas: c, u, d, r", length=20),
        "key": Parameter("only this key, as JSON; needs the token", length=_KEY_MAX),
        "cursor": Parameter("`cursor` of the answer before", length=30),
        "limit": Parameter("how many events to return", 200, least=1, most=LIMIT_MAX),
    }
    key = {"table": Parameter("schema.table", None), "key": Parameter("the key as JSON", None, length=_KEY_MAX)}
    one_view = {"lake": Parameter("name of the lake's sink", None), "view": Parameter("name of the view", None)}
    return [
        PageDocument("picture", "The flow, as the page draws it", desk.picture),
        PageDocument("history", "Values of the last hour", desk.history),
        PageDocument("tables", "Tables, a page at a time", desk.tables, {**listed, "state": state}),
        PageDocument("table", "One table", desk.table, {"name": Parameter("schema.table", None)}),
        PageDocument("topics", "Topics, a page at a time", desk.topics, listed),
        PageDocument("sinks", "Sinks", desk.sinks),
        PageDocument("lakes", "Lakes with cuts and views", desk.lakes),
        PageDocument("lineage", "Where the columns of a view come from", desk.lineage, one_view),
        PageDocument(
            "dead-letters", "Blocked keys", desk.dead_letters, {"sink": Parameter("only this sink")}, shows_values=True
        ),
        PageDocument("events", "The newest events", desk.events, events, shows_values=True),
        PageDocument("key", "Events of one key", desk.key, key, needs_token=True),
        PageDocument("findings", "Open DDL findings", desk.findings),
        PageDocument("alarms", "What needs attention", desk.alarms),
        PageDocument("why", "The causes of what is wrong; takes up to ten seconds", desk.why),
        PageDocument("config", "Settings without secrets", desk.config),
    ]


def page_routes(desk: Desk, access: Access) -> list[BaseRoute]:
    """Return the routes of the page."""
    answers = _Answers(access)
    stream = PictureStream(desk.picture)
    routes: list[BaseRoute] = [
        Route("/", partial(page_file, "index.html")),
        *shared_routes(),
        Route("/api/session", partial(answers.session, desk)),
        Route("/api/stream", stream.answer),
    ]
    routes += [Route(f"/api/{one.path}", partial(answers.document, one)) for one in documents(desk)]
    return routes


def shared_routes() -> list[BaseRoute]:
    """Return the routes of files that are the same for every pipeline."""
    return [
        Mount("/page", _Files(directory=FILES, check_dir=False)),
        Route("/docs", _to_manual),
        Route("/docs/{path:path}", _manual),
    ]


async def page_file(name: str, _request: Request) -> Response:
    """Return an HTML file of the page."""
    return FileResponse(FILES / name, headers=_OF_PAGE, media_type="text/html; charset=utf-8")


async def _to_manual(_request: Request) -> Response:
    return RedirectResponse("/docs/index.md", headers=HEADERS)


def _manual(request: Request) -> Response:
    root = manual.folder()
    found = manual.file_of(request.path_params["path"] or "index.md", root)
    if found is None:
        said = "no such page of the documentation; /docs/index.md lists all of them"
        return json_answer({"error": said}, HTTPStatus.NOT_FOUND)
    if found.suffix in manual.PICTURES:
        return FileResponse(found, headers=_OF_PAGE, media_type=manual.PICTURES[found.suffix])
    return Response(manual.page(found, root, __version__), headers=_OF_PAGE, media_type="text/html; charset=utf-8")


class _Files(StaticFiles):
    """The files of the page, with the headers of the page."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        answer = super().file_response(*args, **kwargs)
        answer.headers.update(_OF_PAGE)
        return answer


class _Answers:
    """Computes documents in threads of its own: Kafka may not answer for seconds, and /livez must."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._threads: CapacityLimiter | None = None  # made in the event loop
        self._waiting = 0

    async def session(self, desk: Desk, request: Request) -> Response:
        given = request.headers.get("Authorization", "")
        token = "valid" if self._access.is_authorised(given) else "wrong" if given else "none"
        return json_answer(desk.session() | {"token": token, "token_configured": bool(self._access.token)})

    async def document(self, one: PageDocument, request: Request) -> Response:
        given = request.headers.get("Authorization", "")
        authorised = self._access.is_authorised(given)
        if one.needs_token and not self._access.token:
            said = "it shows values of rows, and http.token is not configured"
            return json_answer({"error": said}, HTTPStatus.FORBIDDEN)
        if (given or one.needs_token) and not authorised:
            answer = json_answer({"error": "the bearer token does not match http.token"}, HTTPStatus.UNAUTHORIZED)
            answer.headers["WWW-Authenticate"] = "Bearer"
            return answer
        try:
            values = values_of(query_of(request), one.parameters)
        except UsageError as error:
            return _refusal(error, HTTPStatus.BAD_REQUEST)
        more = {"authorised": authorised} if one.shows_values else {}
        if self._waiting >= WAITING_MAX:
            said = f"{WAITING_MAX} requests are already waiting; try again later"
            return json_answer({"error": said}, HTTPStatus.SERVICE_UNAVAILABLE)
        if self._threads is None:
            self._threads = CapacityLimiter(RUNNING_MAX)
        self._waiting += 1
        try:
            return await to_thread.run_sync(
                partial(_computed, partial(one.answer, **values, **more)), abandon_on_cancel=True, limiter=self._threads
            )
        finally:
            self._waiting -= 1


def _computed(answer: Callable[[], dict[str, Any]]) -> Response:
    try:
        return json_answer(answer())
    except TailraceError as error:
        return _refusal(error)


def _refusal(error: TailraceError, code: HTTPStatus | None = None) -> Response:
    """Answer an error; without `code`, 503 if it may go away by itself, else 409: no such table, or a damaged topic."""
    code = code or (HTTPStatus.SERVICE_UNAVAILABLE if error.retry == "timed" else HTTPStatus.CONFLICT)
    found = {"error": error.message, "hint": error.hint, "command": error.command}
    return json_answer({name: text for name, text in found.items() if text}, code)
