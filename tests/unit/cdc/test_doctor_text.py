"""The script for a DBA and the cdc.toml of init: any name is quoted correctly."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import strategies as st

from cdc.config.load import parse
from cdc.config.secret import Secret
from cdc.doctor.new_config import NewConfig, has_password, render, suggested_name, without_password
from cdc.doctor.script import script
from cdc.doctor.source_checks import check_source
from cdc.doctor.table_checks import check_tables
from cdc.patterns import matches, pattern_for
from cdc.replication.connect import conninfo
from tests.fixtures.capture.source_builders import HOSTILE, config, facts, publication, table

names = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1))


def test_pattern_of_a_name_with_wildcards_fits_only_that_name() -> None:
    assert matches("public.a*", [pattern_for("public.a*")])
    assert not matches("public.ab", [pattern_for("public.a*")])
    assert not matches("public.a", [pattern_for("public.[a]")])


def test_local_config_has_one_replica() -> None:
    settings = parse(render(NewConfig("shop", Secret("postgresql://cdc@db/shop"), "k:1", True, facts())), {})

    assert settings.kafka.replication_factor == 1
    assert settings.kafka.allow_unreplicated


@pytest.mark.parametrize(
    ("dsn", "written"),
    [
        ("postgresql://cdc:s3cret@db:5433/shop?sslmode=require", "postgresql://cdc@db:5433/shop?sslmode=require"),
        ("postgresql://a%40b:s3cret@[::1]/we%2Fird", "postgresql://a%40b@[::1]/we%2Fird"),
        ("host=db user=cdc password=s3cret dbname='my db'", "postgresql://cdc@db/my%20db"),
        ("host=/run/pg user=cdc password=s3cret dbname=shop", "user=cdc dbname=shop host=/run/pg"),
        ("host=a,b port=1,2 user=cdc sslpassword=s3cret", "user=cdc host=a,b port=1,2"),
    ],
)
def test_password_is_never_written(dsn: str, written: str) -> None:
    assert has_password(Secret(dsn))
    assert without_password(Secret(dsn)) == written
    assert not has_password(Secret(written))
    conninfo(Secret(written))


@pytest.mark.parametrize(
    ("database", "name"),
    [("Shop", "shop"), ("my-db.1", "my_db_1"), ("1st", "db_1st"), ("語", "db"), ("x" * 63, "x" * 40)],
)
def test_pipeline_is_named_after_the_database(database: str, name: str) -> None:
    assert suggested_name(database) == name


def test_script_without_access_to_the_source_creates_role_and_slot() -> None:
    text = script(config(dsn="postgresql://re%22ader@db/shop"), None)

    assert """create role "re""ader" with login replication password 'CHANGE ME';""" in text
    assert "pg_create_logical_replication_slot('cdc_shop', 'pgoutput')" in text
    assert "run `cdc doctor --sql` again" in text


def test_script_grants_nothing_to_a_superuser() -> None:
    found = facts(role=replace(facts().role, superuser=True))

    text = script(config(), found)

    assert "create role" not in text
    assert "grant" not in text.split("-- The published tables", 1)[1]


def test_script_extends_and_mends_a_publication_that_exists() -> None:
    first, second = table("a"), table("b", kind="p")
    found = facts(first, second, publication=publication(first, via_root=False))

    text = script(config(), found)

    assert 'alter publication "cdc_shop" set (publish_via_partition_root = true);' in text
    assert "create publication" not in text


def test_statements_of_findings_hold_no_password() -> None:
    found = facts()
    settings = config(dsn="postgresql://cdc:s3cret@db/shop")

    shown = [*check_source(found, settings), *check_tables(found, settings)]

    assert "s3cret" not in repr(shown) + script(settings, found, shown) + repr(settings)
