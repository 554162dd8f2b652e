"""An obstacle to a snapshot is reported once it lasts, and shown until it has passed."""

from __future__ import annotations

import threading

from cdc.model.relation import Relation, ReplicaIdentity
from snapshot.chunk import Form
from snapshot.handover import HandOver
from snapshot.merger import Merger
from snapshot.obstacle import Obstacles
from snapshot.snapshot_progress import TableProgress, WaitReasons, document


def test_lasting_condition_is_logged_once_and_shown_until_it_has_passed() -> None:
    found = Obstacles(report_after_s=10)

    assert [found.met("t", why, at_s) for why, at_s in (("a", 0.0), ("b", 9.0), ("c", 10.0), ("d", 11.0))] == [
        False,
        False,
        True,
        False,
    ]
    assert found.reported == {"t": "d"}
    assert found.passed("t")
    assert found.reported == {}


def test_brief_condition_is_not_logged() -> None:
    found = Obstacles(report_after_s=10)

    found.met("t", "a lock", 0.0)
    assert not found.passed("t")
    assert not found.met("t", "another lock", 11.0)
    assert found.reported == {}


def test_status_says_what_a_table_waits_for_and_only_that_table() -> None:
    reasons = WaitReasons(obstacles={"public.t": "canceling statement due to statement timeout (SQLSTATE 57014)"})

    shown = {name: document(_reading(name), (0.0, 0.0), reasons)["waits_for"] for name in ("public.t", "public.u")}

    assert shown == {"public.t": [f"PostgreSQL to allow the read: {reasons.obstacles['public.t']}"], "public.u": []}


def test_reader_that_is_stopped_while_it_waits_for_the_capture_thread_ends_quietly() -> None:
    handover = HandOver(Merger(), lambda *_: None, epoch=1)
    (stop := threading.Event()).set()

    assert handover.key_of(Form(Relation(1, "public", "t", ReplicaIdentity.DEFAULT, ())), stop) is None


def _reading(name: str) -> TableProgress:
    return TableProgress(
        table=name,
        state="planned",
        paused=False,
        number=1,
        again=False,
        row_count=0,
        byte_count=0,
        blocks_done=0,
        block_count=1,
        keys_left=0,
        chunks_read=0,
        chunks_waiting=0,
        waits_for=frozenset(),
    )
