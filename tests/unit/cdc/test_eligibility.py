"""Which tables are captured and which are left out, with reason and statement."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.model.left_out import REASONS
from cdc.replication.eligibility import judge
from cdc.replication.publication import PublicationFacts
from tests.fixtures.capture.source_builders import keyless_table, publication, table

FACTS = publication()


def test_one_table_that_cannot_be_captured_leaves_the_others_captured() -> None:
    good, bad = table("good"), keyless_table("bad")

    judged = judge([good, bad], publication(good), name="p", create=True)

    assert judged.captured == (good,)
    assert [(one.table, one.reason) for one in judged.left_out] == [(bad.table, "no_key")]


def test_a_new_table_that_we_own_is_added() -> None:
    new = table("new")

    judged = judge([new], FACTS, name="p", create=True)

    assert judged.to_add == (new,)
    assert judged.captured == (new,)


@pytest.mark.parametrize(
    ("facts", "owned", "create", "why"),
    [
        (FACTS, False, True, "the table is owned by 'app'"),
        (replace(FACTS, owned=False, owner="dba"), True, True, "the publication is owned by 'dba'"),
        (FACTS, True, False, "source.create is false"),
        (None, False, True, "the table is owned by 'app'"),
    ],
)
def test_a_table_that_may_not_be_added_is_named_with_the_statement(
    facts: PublicationFacts | None, owned: bool, create: bool, why: str
) -> None:
    new = replace(table("new"), owner="app", owned=owned)

    (found,) = judge([new], facts, name="p", create=create).left_out

    assert found.reason == "not_published"
    assert why in found.problem
    assert found.statement == 'alter publication "p" add table only "public"."new";'


def test_a_table_that_is_published_needs_no_rights() -> None:
    there = replace(table("there"), owned=False)

    judged = judge([there], publication(there), name="p", create=False)

    assert judged.captured == (there,)
    assert judged.to_add == ()


def test_a_partitioned_table_of_a_publication_of_leaves_is_left_out_alone() -> None:
    root, plain = table("root", kind="p"), table("plain")
    leaves = publication(plain, via_root=False)

    judged = judge([root, plain], leaves, name="p", create=True)

    assert judged.captured == (plain,)
    assert judged.left_out[0].reason == "partitions_apart"
    assert "publish_via_partition_root" in judged.left_out[0].statement


def test_a_table_whose_topic_has_another_key_is_left_out() -> None:
    changed = table("changed")

    (found,) = judge([changed], FACTS, name="p", create=True, topic_keys={changed.table: ("former",)}).left_out

    assert found.reason == "key_changed"
    assert judge([changed], FACTS, name="p", create=True, topic_keys={changed.table: changed.key}).captured


def test_unlogged_and_foreign_tables_are_never_captured() -> None:
    judged = judge([table("u", persistence="u"), table("f", kind="f")], FACTS, name="p", create=True)

    assert [one.reason for one in judged.left_out] == ["unlogged", "foreign"]
    assert set(REASONS) >= {one.reason for one in judged.left_out}


def test_a_table_whose_column_list_lacks_a_key_column_is_left_out_alone() -> None:
    good, bad = table("good"), replace(table("bad"), oid=table("good").oid + 1)
    facts = publication(good, bad)
    hidden = replace(facts, columns={**facts.columns, bad.oid: frozenset({"v"})})

    judged = judge([good, bad], hidden, name="p", create=True)

    assert judged.captured == (good,)
    (found,) = judged.left_out
    assert (found.table, found.reason) == (bad.table, "not_published")
    assert "does not publish its key column 'id'" in found.problem
    assert found.statement.startswith('alter publication "cdc_shop" drop table "public"."bad";')
