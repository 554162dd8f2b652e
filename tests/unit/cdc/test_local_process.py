from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc.artifacts.machine import Machine
from cdc.errors import LocalError, LocalStopped
from cdc.local.process import Launch, ServerProcess
from cdc.local.process_identity import Identity, alive, descendants, kill_tree
from cdc.local.stack_state import State, render_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# A server that says it is ready by a file, has a child, and ends at SIGTERM.
SERVER = "sleep 600 & trap 'kill $!; exit 0' TERM; : > ready; wait"
# One that lives and does not listen to SIGTERM.
DEAF = "trap '' TERM; : > ready; while :; do sleep 600 & wait; done"
TERM = [(signal.SIGTERM, 10.0)]


class Fake:
    """A server that is a shell command."""

    def __init__(self, home: Path, script: str) -> None:
        self.process = ServerProcess(home, Machine(home.parent), name="fake", version="1")
        self._script = script

    def ready(self) -> bool:
        return (self.process.run / "ready").exists()

    def start(self, ready_s: float = 30.0, **wanted: int) -> None:
        (self.process.run / "ready").unlink(missing_ok=True)
        self.process.launch(
            self._launch, self.ready, roles=("main",), wanted=wanted, settings={"a": "1"}, ready_s=ready_s
        )

    def _launch(self, ports: Mapping[str, int]) -> Launch:
        return Launch(["/bin/sh", "-c", self._script])


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "fake"
    folder.mkdir()
    yield folder
    ServerProcess(folder, Machine(tmp_path), name="fake", version="1").kill()


def test_another_command_finds_the_process_and_ends_it_with_its_children(home: Path) -> None:
    first = Fake(home, SERVER)
    first.start()
    second = Fake(home, SERVER).process
    process = second.running
    assert process is not None
    family = (process, *descendants(process))

    second.stop(TERM)

    assert len(family) == 2
    assert not any(alive(member) for member in family)
    assert first.process.condition(first.ready) == "stopped"


def test_a_process_that_does_not_listen_is_killed(home: Path) -> None:
    fake = Fake(home, DEAF)
    fake.start()

    fake.process.stop([(signal.SIGTERM, 0.05)])

    assert fake.process.running is None


def test_a_process_that_ended_by_itself_has_died_and_can_be_started(home: Path) -> None:
    fake = Fake(home, SERVER)
    fake.start()
    before = fake.process.ports
    process = fake.process.running
    assert process is not None

    kill_tree(process, deadline_s=10)

    assert fake.process.condition(fake.ready) == "died"
    fake.start()
    assert fake.process.condition(fake.ready) == "running"
    assert fake.process.ports == before


def test_a_process_that_ends_while_it_starts_is_an_error_with_its_last_words(home: Path) -> None:
    fake = Fake(home, "echo no space left >&2; exit 3")

    with pytest.raises(LocalError, match="no space left"):
        fake.start()

    assert fake.process.condition(fake.ready) == "stopped"


def test_a_process_that_never_answers_is_ended(home: Path) -> None:
    fake = Fake(home, "sleep 600")

    with pytest.raises(LocalError, match="did not answer"):
        fake.start(ready_s=0.1)

    assert fake.process.running is None


def test_one_that_is_stopped_while_it_starts_is_not_started_again(home: Path) -> None:
    starting = Fake(home, "sleep 600")
    other = Fake(home, "sleep 600").process

    def stopped_by_another() -> bool:
        other.kill()
        return False

    with pytest.raises(LocalStopped):
        starting.process.launch(
            lambda _: Launch(["sleep", "600"]),
            stopped_by_another,
            roles=("main",),
            wanted={},
            settings={},
            ready_s=30,
        )

    assert starting.process.running is None


def test_a_stale_state_file_never_ends_a_stranger(home: Path) -> None:
    stranger = Fake(home, SERVER)
    stranger.start()
    process = stranger.process.running
    assert process is not None
    other = ServerProcess(home, Machine(home.parent), name="fake", version="1")
    stale = State(Identity(process.pid, "another boot:1"), {"main": 25000})
    (home / "state.json").write_text(render_state(stale))

    other.kill()

    assert alive(process)
    assert other.state.process is None
    (home / "state.json").write_text(render_state(State(process)))


def test_a_damaged_state_file_is_started_over(home: Path) -> None:
    (home / "state.json").write_text('{"format": 1, "proc')
    fake = Fake(home, SERVER)

    fake.start()

    assert fake.process.condition(fake.ready) == "running"


def test_a_restart_keeps_the_port(home: Path) -> None:
    fake = Fake(home, SERVER)
    fake.start()
    port = fake.process.ports["main"]

    fake.process.stop(TERM)
    fake.start()

    assert fake.process.ports["main"] == port


def test_settings_that_differ_from_the_running_ones_are_refused(home: Path) -> None:
    fake = Fake(home, SERVER)
    fake.start()

    fake.process.check_settings({}, port=None)
    fake.process.check_settings({"a": "1"}, port=fake.process.ports["main"])
    with pytest.raises(LocalError, match="another a, port"):
        fake.process.check_settings({"a": "2"}, port=1)


def test_a_description_says_what_people_need(home: Path) -> None:
    fake = Fake(home, SERVER)
    absent = fake.process.describe(fake.ready, address="x:0", exports={"X": "0"})
    fake.start()

    running = fake.process.describe(fake.ready, address="x:1", exports={"X": "1"})

    assert (absent.condition, absent.address, absent.exports) == ("absent", "", {})
    assert (running.condition, running.address, running.exports) == ("running", "x:1", {"X": "1"})
    assert running.pid is not None
    assert Path(running.log).exists()


def test_a_tool_that_fails_says_why(home: Path) -> None:
    process = Fake(home, SERVER).process

    with pytest.raises(LocalError, match="wrong flag"):
        process.run_tool(Launch([sys.executable, "-S", "-c", "import sys; sys.exit('wrong flag')"]), deadline_s=30)
    with pytest.raises(LocalError, match="cannot be run"):
        process.run_tool(Launch(["/no/such/tool"]), deadline_s=30)


def test_a_server_knows_nothing_of_our_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", "hush")
    process = Fake(home, SERVER).process

    process.run_tool(Launch(["/bin/sh", "-c", 'test -z "$SOME_SECRET" && test -n "$HOME"']), deadline_s=30)
