"""A request is passed on to the process of a pipeline, and a process that does not answer holds no request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from starlette.requests import Request

from cdc.web import relay

if TYPE_CHECKING:
    from pathlib import Path


async def _relayed(socket: Path, handle: bytes | None) -> bytes:
    """Relay one GET to a server that answers with these bytes, or never."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if handle is None:
            await over.wait()
        else:
            writer.write(handle)
        writer.close()

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    request = Request({"type": "http", "method": "GET", "headers": [], "client": None}, receive)
    async with await asyncio.start_unix_server(serve, str(socket)):
        try:
            answer = await asyncio.wait_for(relay.relayed(request, str(socket), b"/status", 100), 10)
            return b"".join([part async for part in answer.body_iterator])  # type: ignore[attr-defined]
        finally:
            over.set()


def test_answer_of_a_process_is_passed_on(tmp_path: Path) -> None:
    found = asyncio.run(_relayed(tmp_path / "s", b"HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\nRUNNING"))

    assert found == b"RUNNING"


def test_frozen_process_does_not_hold_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "HEAD_S", 0.2)

    with pytest.raises(relay.NoAnswer, match="no answer within"):
        asyncio.run(_relayed(tmp_path / "s", None))
