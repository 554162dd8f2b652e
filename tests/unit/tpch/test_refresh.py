"""The changes of TPC-H keep foreign keys, never insert an order twice, and never run out of orders."""

from __future__ import annotations

from decimal import Decimal

from tests.tpch.refresh import Delete, Insert, Refresh, Sizes, Update, order_key
from tests.tpch.statements import statements
from tests.tpch.tables import schemas

SIZES = Sizes(orders=50, customers=30, parts=40, suppliers=10)


def test_base_keys_are_those_of_the_specification() -> None:
    assert [order_key(index, 0) for index in range(10)] == [1, 2, 3, 4, 5, 6, 7, 32, 33, 34]
    assert [order_key(index, 1) for index in range(8)] == [9, 10, 11, 12, 13, 14, 15, 40]


def test_a_thousandth_of_the_orders_is_replaced() -> None:
    refresh = Refresh(Sizes.of_scale(0.01), seed=1)

    assert Sizes.of_scale(0.01) == Sizes(orders=15_000, customers=1500, parts=2000, suppliers=100)
    assert refresh.orders_per_pair == 15
    assert len(list(refresh.inserts(3))) == len(list(refresh.deletes(3))) == 15


def test_pairs_never_end_and_keep_the_number_of_orders() -> None:
    refresh = Refresh(SIZES, seed=1)
    live = {order_key(index, 0) for index in range(SIZES.orders)}
    assert {int(str(change.key[0])) for (change,) in refresh.updates(-1, 50) if change.table == "orders"} <= live  # type: ignore[union-attr]

    for pair in range(6 * SIZES.orders):
        for transaction in refresh.inserts(pair):
            first = transaction[0]
            assert isinstance(first, Insert)
            assert first.row[0] not in live
            live.add(int(str(first.row[0])))
        for lines, order in refresh.deletes(pair):
            assert isinstance(lines, Delete)
            assert isinstance(order, Delete)
            assert lines.key == order.key
            live.remove(int(str(order.key[0])))
        assert len(live) == SIZES.orders
        for (update,) in refresh.updates(pair, 5):
            assert isinstance(update, Update)
            if update.table in {"orders", "lineitem"}:
                assert update.key[0] in live


def test_the_first_round_deletes_every_order_of_the_base() -> None:
    refresh = Refresh(SIZES, seed=1)
    deleted = {order.key[0] for pair in range(SIZES.orders) for _, order in refresh.deletes(pair)}  # type: ignore[union-attr]

    assert deleted == {order_key(index, 0) for index in range(SIZES.orders)}


def test_rows_refer_to_rows_that_exist_and_total_their_lines() -> None:
    refresh = Refresh(SIZES, seed=1)
    supplied = {  # those of `partsupp`, as the test on a server shows
        (part, refresh.supplier(part, place)) for part in range(1, 41) for place in range(4)
    }

    for pair in range(40):
        for order, *lines in refresh.inserts(pair):
            assert isinstance(order, Insert)
            assert len(order.row) == len(schemas()["orders"])
            assert 1 <= int(str(order.row[1])) <= SIZES.customers
            assert int(str(order.row[1])) % 3
            assert 1 <= len(lines) <= 7
            total = Decimal(0)
            for number, line in enumerate(lines, 1):
                assert isinstance(line, Insert)
                row = dict(zip(schemas()["lineitem"].names, line.row, strict=True))
                assert (row["l_orderkey"], row["l_linenumber"]) == (order.row[0], number)
                assert (row["l_partkey"], row["l_suppkey"]) in supplied
                price, discount, tax = (Decimal(str(row[name])) for name in ("l_extendedprice", "l_discount", "l_tax"))
                total += price * (1 - discount) * (1 + tax)
            assert order.row[3] == round(total, 2)


def test_the_same_seed_gives_the_same_changes_and_another_one_others() -> None:
    one, same, other = Refresh(SIZES, 1), Refresh(SIZES, 1), Refresh(SIZES, 2)

    assert list(one.inserts(7)) == list(same.inserts(7)) != list(other.inserts(7))
    assert list(one.updates(7, 9)) == list(same.updates(7, 9)) != list(other.updates(7, 9))


def test_every_table_but_region_is_updated() -> None:
    updated = {change.table for (change,) in Refresh(SIZES, 1).updates(0, 500)}

    assert updated == schemas().keys() - {"region"}


def test_statements_have_a_mark_per_parameter() -> None:
    changes = (Insert("region", (1, "a", None)), Delete("lineitem", (7,)), Update("lineitem", (7, 2), {"l_tax": 1}))

    assert list(statements(changes)) == [
        (b"insert into region values (%s, %s, %s)", (1, "a", None)),
        (b"delete from lineitem where l_orderkey = %s", (7,)),
        (b"update lineitem set l_tax = %s where l_orderkey = %s and l_linenumber = %s", (1, 7, 2)),
    ]
