"""`cdc verify` of a sink under writes: no correct key is reported, and all damage is found and repaired."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc.cli.main import run
from cdc.clock import SystemClock
from cdc.errors import SinkStale
from cdc.kafka.group_member import CommittedOffset
from cdc.kafka.group_offsets import GroupAdmin
from cdc.model.topic_names import sink_group
from cdc.verify.key_states import Sample
from cdc.verify.key_verdict import DifferenceKind
from cdc.verify.store_check import verify_store
from cdc.verify.topic_comparison import verify_source
from sinks import compose
from sinks.compose import start_applied
from sinks.runner.runner_observer import Unobserved
from sinks.state.offset_metadata import mark_of, metadata
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.memory_target import MemoryTarget
from tests.fixtures.sinks.sink_beside_capture import SECTIONS, SINK, config_of, sinking, stored, writing

if TYPE_CHECKING:
    from cdc.config.settings import Config
    from cdc.verify.findings import TableFindings
    from sinks.contract import Target
    from tests.fixtures.servers.daemon import CaptureSite

TABLE: Final = "create table t (id int, part text, v int, body text, primary key (id, part))"
FILL: Final = "insert into t select n, 'p' || n % 3, n, 'body' from generate_series(1, 300) n"
# Keys 1 to 200 are nobody's; above, rows come, change and go, some twice in a transaction.
LOAD: Final = (
    "insert into t values (1000 + :n, 'new', :n, null)",
    "update t set v = :n where id between 201 and 230",
    "delete from t where id = 1000 + :n - 5",
    "with gone as (delete from t where id = 240 returning *) insert into t select id, part, :n, body from gone",
    "update t set id = id + 10000, v = :n where id = 1000 + :n - 3",
)


def level(site: CaptureSite, config: Config, target: MemoryTarget) -> None:
    """Wait until the store has as many rows as the table, and the sink has committed that."""
    (count,) = site.query("select count(*) from t")[0]
    topic = site.topic("t")
    until(lambda: sum(one.row is not None for one in stored(target, topic).values()) == count, "the store is level")
    newest = {(topic, one.partition): one.offset for one in sorted(stored(target, topic).values(), key=itemgetter(2))}
    groups, group = GroupAdmin(config.kafka), sink_group(config.name, SINK)

    def committed() -> bool:
        found = groups.committed(group, newest)
        return all(at in found and found[at].offset > offset for at, offset in newest.items())

    until(committed, "the sink has committed it")


def of_store(config: Config, target: Target, *, repair: bool = False, sample: Sample | None = None) -> TableFindings:
    (found,) = verify_store(config, SINK, target, (), clock=SystemClock(), sample=sample or Sample(), repair=repair)
    return found


def of_source(config: Config, *, repair: bool = False) -> TableFindings:
    (found,) = verify_source(config, (), clock=SystemClock(), sample=Sample(), repair=repair)
    return found


def test_planted_differences_are_found_and_repaired_under_load_and_nothing_else_is_touched(
    capture: CaptureSite,
) -> None:
    capture.sql(TABLE)
    capture.running(SECTIONS)
    capture.sql(FILL)
    config, target, topic = config_of(capture), MemoryTarget(), capture.topic("t")
    with sinking(config, target):
        level(capture, config, target)
        with writing(capture, *LOAD):
            assert of_store(config, target).ok
            assert of_source(config).ok
            before = stored(target, topic)
            quiet = [key for key in sorted(before) if 1 <= json.loads(key)["id"] <= 200]
            edited, deleted, stale, shadowed, extra = (*quiet[:4], b'{"id":77777,"part":"x"}')
            keys = target._keys
            keys[(topic, edited)] = before[edited]._replace(row=b'{"id":1,"part":"p1","v":-1,"body":"edited"}')
            del keys[(topic, deleted)]
            keys[(topic, stale)] = before[stale]._replace(offset=before[stale].offset - 1, row=b'{"v":-2}')
            keys[(topic, shadowed)] = before[shadowed]._replace(row=None)
            keys[(topic, extra)] = before[quiet[9]]._replace(key=extra)

            found = of_store(config, target)
            assert found.counts == {
                DifferenceKind.MISSING: 2,
                DifferenceKind.EXTRA: 1,
                DifferenceKind.STALE: 1,
                DifferenceKind.DIFFERENT: 1,
            }, found
            assert not found.ok
            found = of_store(config, target, repair=True)

        assert (found.repaired, found.unrepaired, found.undecided, found.ok) == (5, 0, 0, True), found
        after = stored(target, topic)
        assert {key: after[key] for key in quiet} == {key: before[key] for key in quiet}
        assert extra not in after
        level(capture, config, target)
        assert of_store(config, target).ok


def test_rows_missing_in_the_log_are_found_and_read_again_by_key(capture: CaptureSite) -> None:
    """A partition is detached, written to and attached again: PostgreSQL publishes nothing of that."""
    capture.sql(
        TABLE + " partition by range (id)",
        "create table quiet partition of t for values from (1) to (201)",
        "create table busy partition of t default",
        FILL,
    )
    capture.running({**SECTIONS, "snapshot": {"mode": "initial"}, "ddl": {"policy": "warn"}})
    config, target = config_of(capture), MemoryTarget()
    until(lambda: of_source(config).ok, "the first snapshot", within_s=60, every_s=0.5)
    with sinking(config, target), writing(capture, *LOAD):
        capture.sql(
            "alter table t detach partition quiet",
            "insert into quiet select id, 'more', v from quiet where id <= 5",
            "update quiet set v = -1 where id between 11 and 14",
            "delete from quiet where id between 21 and 23",
            "alter table t attach partition quiet for values from (1) to (201)",
        )

        found = of_source(config)
        assert found.counts == {
            DifferenceKind.MISSING: 5,
            DifferenceKind.EXTRA: 3,
            DifferenceKind.STALE: 0,
            DifferenceKind.DIFFERENT: 4,
        }, found
        assert found.undecided == 0
        found = of_source(config, repair=True)

        assert (found.repaired, found.unrepaired, found.undecided, found.ok) == (12, 0, 0, True), found
        found = of_source(config)
        assert (found.ok, found.differing) == (True, 0), found
        records = capture.log().topic(capture.topic("t"))
        for key in (b'{"id":%d,"part":"p%d"}' % (number, number % 3) for number in (21, 22, 23)):
            ops = [record.op for record in records if record.key == key]
            assert ops[1:] == ["d", "tombstone"], "deleted once, with its tombstone"
        assert of_store(config, target).ok


def test_command_says_what_it_compared_and_ends_with_1_when_something_differs(
    capture: CaptureSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capture.sql(TABLE)
    capture.running(SECTIONS)
    capture.sql(FILL)
    config, target, topic = config_of(capture), MemoryTarget(), capture.topic("t")
    path = capture.folder / "cdc-0.toml"
    monkeypatch.setattr(compose, "target_of", lambda *_: target)

    def told(*arguments: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()  # what the runner has logged
        code = run(["-c", str(path), "verify", *arguments, "--json"])
        return code, json.loads(capsys.readouterr().out)

    with sinking(config, target):
        level(capture, config, target)
        code, whole = told(SINK)
        assert (code, whole["ok"], whole["sample"]) == (0, True, None)
        assert [one["compared"] for one in whole["source_topics"] + whole["topics_sink"]] == [300, 300]
        del target._keys[(topic, b'{"id":7,"part":"p1"}')]
        code, broken = told(SINK, "--no-source")
        assert (code, broken["ok"], broken["topics_sink"][0]["missing"]) == (1, False, 1)
        assert broken["topics_sink"][0]["examples"] == {"missing": ['{"id":7,"part":"p1"}']}
        code, mended = told(SINK, "--no-source", "--repair")
        assert (code, mended["topics_sink"][0]["repaired"]) == (0, 1)
        code, some = told("--topics", "--sample", "0.2", "--seed", "3")
        assert (code, some["sample"]) == (0, {"share": 0.2, "seed": 3})
        assert 20 < some["source_topics"][0]["compared"] < 120
    assert run(["-c", str(path), "verify"]) == 2
    assert run(["-c", str(path), "verify", SINK, "--topics"]) == 2


def test_sink_that_slept_past_deletes_goes_on_once_it_is_repaired_and_not_before(capture: CaptureSite) -> None:
    capture.sql(TABLE)
    capture.running(SECTIONS)
    capture.sql(FILL)
    config, target, topic = config_of(capture), MemoryTarget(), capture.topic("t")
    with sinking(config, target):
        level(capture, config, target)
    groups, group = GroupAdmin(config.kafka), sink_group(config.name, SINK)
    old_s = int(SystemClock().wall_s()) - 30 * 86_400
    committed = groups.committed(group, {(one.topic, one.partition) for one in stored(target, topic).values()})
    marks = {place: mark_of(one.metadata) for place, one in committed.items()}
    asleep = {
        place: CommittedOffset(one.offset, metadata(mark.topic_id, old_s))
        for place, one in committed.items()
        if (mark := marks[place]) is not None
    }
    assert asleep.keys() == committed.keys()
    groups.alter(group, asleep)
    missed = next(iter(stored(target, topic).values()))._replace(key=b'{"id":88888,"part":"x"}')  # its delete is gone
    target._keys[(topic, missed.key)] = missed
    capture.sql("insert into t values (5000, 'while it slept', 1, null)", "update t set v = -7")

    def refused() -> str:
        with pytest.raises(SinkStale) as caught, closing(start_applied(
            config, SINK, SystemClock(), observer=Unobserved(), target=target
        )) as runner:  # fmt: skip
            runner.run(threading.Event())
        return caught.value.hint

    assert f"cdc verify {SINK} --repair" in refused()
    assert not of_store(config, target).ok
    assert f"cdc verify {SINK} --repair" in refused(), "a look mends nothing"

    found = of_store(config, target, repair=True)
    assert (found.counts[DifferenceKind.EXTRA], found.ok) == (1, True), found
    with sinking(config, target):
        level(capture, config, target)
        until(lambda: of_store(config, target).ok, "it has applied what came while it slept")
    assert missed.key not in stored(target, topic)
