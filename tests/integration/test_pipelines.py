"""Several pipelines in one file, on real servers: each is exact, and none stops another one."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from tests.fixtures.capture.referee import history_faults
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.daemon import CaptureSite
from tests.fixtures.servers.pipelines_run import TOKEN, pipelines, pipelines_file
from tests.fixtures.servers.supervised_run import is_gone
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite
    from tests.fixtures.servers.pipelines_run import Pipelines, Sites

_KEYS = {"public.t": ["id"]}


def _written(site: CaptureSite, first: int, count: int = 50) -> None:
    site.sql(
        f"insert into t select i, 'row ' || i from generate_series({first}, {first + count - 1}) i",
        f"update t set v = v || '!' where id % 3 = 0 and id >= {first}",
        f"delete from t where id % 7 = 0 and id >= {first}",
    )


def _reached(daemon: Pipelines, site: CaptureSite) -> None:
    """Wait until its topics have all that is committed now."""
    lsn = site.wal()

    def look() -> bool:
        status = daemon.pipeline(site.name)["status"]
        return bool(status and status["position"]) and _lsn(status["position"]) >= int(lsn)

    until(look, f"{site.name} reaches {lsn}", within_s=90)


def _lsn(text: str) -> int:
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def _metric(page: str, name: str, **labels: str) -> list[float]:
    return [
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]


def test_each_pipeline_of_a_file_is_exact_and_a_killed_one_comes_back_while_the_other_never_stops(
    pipeline_sites: Sites, tmp_path: Path
) -> None:
    shop, crm = pipeline_sites.values()
    with pipelines(tmp_path, pipelines_file(tmp_path / "cdc.toml", pipeline_sites)) as daemon:
        for site in (shop, crm):
            daemon.until_pipeline(site.name)
        oracles = {site.name: site.oracle() for site in (shop, crm)}
        _written(shop, 1)
        _written(crm, 1)
        _reached(daemon, shop)

        os.kill(daemon.pids(shop.name)[0], signal.SIGKILL)
        _written(crm, 1000)
        _reached(daemon, crm)
        _written(shop, 1000)
        until(lambda: len(daemon.pids(shop.name)) == 2, "the killed one is started again", within_s=60)
        daemon.until_pipeline(shop.name)
        _reached(daemon, shop)
        _written(crm, 2000)
        _reached(daemon, crm)
        code, page = daemon.ask("/metrics")

        assert len(daemon.pids(crm.name)) == 1
        assert daemon.pipeline(shop.name)["restarts"] == 1
        for site in (shop, crm):
            assert history_faults(oracles[site.name].changes(["public.t"]), site.log(), _KEYS) == []
            assert _metric(page, "cdc_supervised_pipeline_answers", pipeline=site.name) == [1.0]
            assert _metric(page, "cdc_state", pipeline=site.name, state="RUNNING") == [1.0]
            assert len(_metric(page, "process_resident_memory_bytes", pipeline=site.name)) == 1
        assert code == 200
        assert daemon.stop() == 0
    assert all(is_gone(pid) for pid in daemon.pids())


def test_pipeline_that_needs_an_operator_leaves_the_others_running_and_starts_again_at_sighup(
    pipeline_sites: Sites, tmp_path: Path
) -> None:
    shop, crm = pipeline_sites.values()
    config = pipelines_file(tmp_path / "cdc.toml", pipeline_sites)
    with pipelines(tmp_path, config) as daemon:
        for site in (shop, crm):
            daemon.until_pipeline(site.name)
        assert daemon.ask("/readyz")[0] == 200
        port = f"127.0.0.1:{daemon.port}"
        config.write_text(config.read_text().replace("127.0.0.1:0", port))
        crm.sql(f"drop publication {crm.slot}")
        crm.sql("insert into t values (1, 'unpublished')")
        daemon.until_pipeline(crm.name, "GAP", "MISCONFIGURED", within_s=90)
        until(lambda: daemon.pipeline(crm.name)["pid"] is None, "its process ends")
        stopped = daemon.pipeline(crm.name)
        _written(shop, 1)
        _reached(daemon, shop)

        code, page = daemon.ask("/metrics")
        ready = daemon.ask("/readyz")
        one = daemon.ask(f"/pipelines/{crm.name}/status")
        status = cdc("status", "-c", config, "--json")
        probes = [
            cdc("probe", "--ready", "-c", config),
            cdc("probe", "--ready", "-c", config, "--pipeline", shop.name),
            cdc("probe", "-c", config),
        ]

        assert (stopped["pid"], stopped["exit_code"], stopped["status"]) == (None, 3, None)
        assert stopped["error"]["message"]
        assert stopped["error"]["command"].endswith(f" --pipeline {crm.name}")
        assert code == 200
        assert _metric(page, "cdc_supervised_pipeline_state", pipeline=crm.name, state=stopped["state"]) == [1.0]
        assert _metric(page, "cdc_supervised_pipeline_answers", pipeline=crm.name) == [0.0]
        assert _metric(page, "cdc_state", pipeline=shop.name, state="RUNNING") == [1.0]
        assert ready[0] == 503
        assert f"{crm.name} {stopped['state']}" in ready[1]
        assert one[0] == 503
        assert stopped["error"]["message"] in json.loads(one[1])["error"]
        assert status.code == 3
        states = {name: found["state"] for name, found in json.loads(status.out)["pipelines"].items()}
        assert states == {shop.name: "RUNNING", crm.name: "DOWN"}
        assert [probe.code for probe in probes] == [1, 0, 0], probes
        assert len(daemon.pids(shop.name)) == 1

        repaired = cdc("slot", "recreate", "--resnapshot", "--yes", "-c", config, "--pipeline", crm.name)
        assert repaired.code == 0, repaired
        assert len(daemon.pids(crm.name)) == 1, "it starts when it is asked for, not by itself"
        daemon.process.send_signal(signal.SIGHUP)
        daemon.until_pipeline(crm.name)
        assert len(daemon.pids(shop.name)) == 1
        assert daemon.ask("/readyz")[0] == 200
        assert daemon.stop() == 0


def test_actions_reach_the_pipeline_that_they_name_and_need_the_token(pipeline_sites: Sites, tmp_path: Path) -> None:
    shop, crm = pipeline_sites.values()
    config = pipelines_file(tmp_path / "cdc.toml", pipeline_sites)
    with pipelines(tmp_path, config) as daemon:
        for site in (shop, crm):
            daemon.until_pipeline(site.name)
        config.write_text(config.read_text().replace("127.0.0.1:0", f"127.0.0.1:{daemon.port}"))
        body = {"action": "config.reload"}
        path = f"/pipelines/{shop.name}/actions"

        without = daemon.ask(path, body=body)
        within = daemon.ask(path, body=body, headers={"Authorization": f"Bearer {TOKEN}"})
        nowhere = daemon.ask("/actions", body=body, headers={"Authorization": f"Bearer {TOKEN}"})
        unknown = daemon.ask("/pipelines/nope/status")
        by_command = cdc("reload", "-c", config, "--pipeline", crm.name, "--json")
        listed = {
            site.name: json.loads(
                daemon.ask(f"/pipelines/{site.name}/actions", headers={"Authorization": f"Bearer {TOKEN}"})[1]
            )["actions"]
            for site in (shop, crm)
        }

        assert without[0] == 401
        assert within[0] == 200, within
        assert nowhere[0] == 404
        assert unknown[0] == 404
        assert f"configured: {crm.name}, {shop.name}" in json.loads(unknown[1])["error"]
        assert by_command.code == 0, by_command
        assert [len(actions) for actions in listed.values()] == [1, 1]
        assert re.fullmatch(r"127\.0\.0\.1:[1-9]\d*", listed[shop.name][0]["from"]), listed
        assert daemon.ask(f"/pipelines/{shop.name}/api/picture")[0] == 200
        with_stream = daemon.ask(f"/pipelines/{shop.name}/api/session")
        assert json.loads(with_stream[1])["name"] == shop.name


def test_no_pipeline_outlives_a_killed_parent_and_a_new_one_goes_on(pipeline_sites: Sites, tmp_path: Path) -> None:
    shop, crm = pipeline_sites.values()
    config = pipelines_file(tmp_path / "cdc.toml", pipeline_sites)
    with pipelines(tmp_path, config) as first:
        for site in (shop, crm):
            first.until_pipeline(site.name)
        oracles = {site.name: site.oracle() for site in (shop, crm)}
        _written(shop, 1)
        first.kill()
        until(lambda: all(is_gone(pid) for pid in first.pids()), "its children end", within_s=30)
    again = config.with_name("again.toml")
    again.write_text(config.read_text())
    with pipelines(tmp_path, again) as second:
        _written(crm, 1)
        for site in (shop, crm):
            second.until_pipeline(site.name)
            _reached(second, site)
            assert history_faults(oracles[site.name].changes(["public.t"]), site.log(), _KEYS) == []
        assert second.stop() == 0


def test_run_ends_with_the_highest_exit_code_when_no_pipeline_is_left(pipeline_sites: Sites, tmp_path: Path) -> None:
    """Both publications are someone else's to create, and do not exist."""
    own = {name: {"source": {"create": False}} for name in pipeline_sites}
    with pipelines(tmp_path, pipelines_file(tmp_path / "cdc.toml", pipeline_sites, own)) as daemon:
        code = daemon.exit_code()
        (ended,) = daemon.events("pipelines_ended")

    assert code == ended["exit_code"] == 3
    assert ended["exit_codes"] == dict.fromkeys(sorted(pipeline_sites), 3)
    assert {event["pipeline"] for event in daemon.events("capture_stopped")} == set(pipeline_sites)
