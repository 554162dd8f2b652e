"""OAuth tokens from a command, on a broker with SASL/OAUTHBEARER: renewed before they expire, and never shown (F4)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.faults.secured import SecuredBroker
    from tests.fixtures.servers.daemon import CaptureSite

_LIFETIME_S: Final = 5
_SECRET: Final = "canary-oauth-19d2"
# A token without a signature, as Kafka's development handler takes it. What it prints on stderr must not appear.
_PROGRAM: Final = f"""
import base64, json, os, sys, time

folder = sys.argv[1]
with open(folder + "/runs", "a") as runs:
    runs.write("x")
print("{_SECRET}", file=sys.stderr)
if os.path.exists(folder + "/broken"):
    sys.exit("{_SECRET}")
part = lambda one: base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=").decode()
now = time.time()
claims = {{"sub": "cdc", "iat": now, "exp": now + {_LIFETIME_S}, "canary": "{_SECRET}"}}
print(part({{"alg": "none"}}) + "." + part(claims) + ".")
"""


def _command(folder: Path) -> list[str]:
    return [sys.executable, "-S", "-c", _PROGRAM, str(folder)]


def test_failed_command_is_waited_for_and_its_tokens_are_renewed(capture: CaptureSite, secured: SecuredBroker) -> None:
    capture.sql("create table t (id int primary key)")
    secured.grant(capture.name)
    broken, runs = capture.folder / "broken", capture.folder / "runs"
    broken.touch()
    daemon = capture.daemon({"kafka": secured.oauth_options(_command(capture.folder))})
    until(lambda: "kafka.oauth_command" in str(daemon.status().get("error")), "the failure is named")
    broken.unlink()
    daemon.until_running()
    started = runs.stat().st_size
    daemon.until_position(capture.sql("insert into t values (1)"))
    status = cdc("status", "--json", "-c", capture.folder / "cdc-0.toml")
    until(lambda: runs.stat().st_size >= started + 2, "tokens are renewed", within_s=60)
    daemon.until_position(capture.sql("insert into t values (2)"))

    assert daemon.stop() == 0
    assert status.code == 0, status.err
    texts = f"{daemon.log_text()}{status}"
    assert _SECRET not in texts
    assert "eyJ" not in texts, "the beginning of a token"
