from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cdc.local.process_identity import (
    Identity,
    alive,
    descendants,
    identify,
    kill_tree,
    parse_ps,
    parse_stat,
    send,
    wait_gone,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# A process with a child, as servers are; it says when the child is there.
FAMILY = "import subprocess,sys; c=subprocess.Popen(['sleep','600']); print(c.pid, flush=True); c.wait()"
STAT = "4242 (a ) (b) S 17 4242 4242 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 1000 10 1844 1 1 0"


@pytest.fixture
def family() -> Iterator[tuple[subprocess.Popen[str], int]]:
    with subprocess.Popen([sys.executable, "-S", "-c", FAMILY], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        yield parent, child
        for pid in (child, parent.pid):
            if identify(pid) is not None:
                os.kill(pid, signal.SIGKILL)


def test_a_name_with_brackets_and_blanks_does_not_shift_the_fields() -> None:
    entry = parse_stat(STAT, "boot")

    assert entry is not None
    assert entry.identity == Identity(4242, "boot:98765")
    assert entry.parent == 17
    assert not entry.ended


def test_a_zombie_has_ended() -> None:
    entry = parse_stat(STAT.replace(" S ", " Z "), "boot")

    assert entry is not None
    assert entry.ended


def test_a_zombie_with_threads_that_still_end_holds_its_ports() -> None:
    entry = parse_stat(STAT.replace(" S ", " Z ").replace(" 20 0 1 0 ", " 20 0 7 0 "), "boot")

    assert entry is not None
    assert not entry.ended


def test_a_line_of_ps_is_read() -> None:
    entry = parse_ps("  501   1 Ss   Sat Nov 21 16:05:01 2026")

    assert entry is not None
    assert entry.identity == Identity(501, "Sat Nov 21 16:05:01 2026")
    assert entry.parent == 1


def test_a_process_with_the_pid_but_another_start_is_not_ours() -> None:
    ours = identify(os.getpid())

    assert ours is not None
    assert alive(ours)
    assert not alive(Identity(ours.pid, ours.started + "0"))
    assert not send(Identity(ours.pid, ours.started + "0"), signal.SIGKILL)


def test_a_child_that_ended_is_gone_even_before_it_is_collected() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        identity = identify(child.pid)
        assert identity is not None

        child.kill()

        assert wait_gone([identity], deadline_s=10)
        child.returncode = 0  # its status was collected by `alive`


def test_killing_a_process_kills_all_below_it(family: tuple[subprocess.Popen[str], int]) -> None:
    parent, child = family
    root = identify(parent.pid)
    assert root is not None
    below = descendants(root)

    gone = kill_tree(root, deadline_s=10)

    assert [p.pid for p in below] == [child]
    assert gone
    assert not alive(root)
    assert not alive(below[0])


def test_killing_what_is_gone_is_no_error() -> None:
    assert kill_tree(Identity(2**22 + 1, "never"), deadline_s=0)
