"""OAuth tokens from a command, on a broker with SASL/OAUTHBEARER: renewed before they expire, and never shown (F4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fixtures.faults.oauth_command import SECRET, oauth_command
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.faults.secured import SecuredBroker
    from tests.fixtures.servers.daemon import CaptureSite


def test_failed_command_is_waited_for_and_its_tokens_are_renewed(capture: CaptureSite, secured: SecuredBroker) -> None:
    capture.sql("create table t (id int primary key)")
    secured.grant(capture.name)
    broken, runs = capture.folder / "broken", capture.folder / "runs"
    broken.touch()
    daemon = capture.daemon({"kafka": secured.oauth_options(oauth_command(capture.folder))})
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
    assert SECRET not in texts
    assert "eyJ" not in texts, "the beginning of a token"
