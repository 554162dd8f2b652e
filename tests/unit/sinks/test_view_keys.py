"""The columns that a view is kept by, and those that no two of its rows share."""

from __future__ import annotations

import pytest

from sinks.warehouse.planner.plan import plan_view
from tests.property.viewworld import relations

JOINED = "from orders o join lines l on l.order_id = o.id join customers c on c.id = o.customer_id"


@pytest.mark.parametrize(
    ("sql", "key", "unique"),
    [
        ("select id, status from orders", ["id"], ["id"]),
        (f"select l.id, o.id as oid, c.id as cid {JOINED}", ["id"], ["id"]),
        (f"select c.region, l.sku {JOINED}", ["region", "sku"], []),
        (f"select o.id, o.status, count(*) as n {JOINED} group by o.id, o.status", ["id"], ["id"]),
        (f"select o.id, l.sku, count(*) as n {JOINED} group by o.id, l.sku", ["id"], ["id", "sku"]),
        (f"select o.id, c.region, count(*) as n {JOINED} group by o.id, c.region", ["id"], ["id"]),
        (f"select c.region, count(*) as n {JOINED} group by c.region", ["region"], ["region"]),
        (f"select c.region, count(*) as n {JOINED} group by c.region, l.sku", ["region"], []),
        (f"select distinct c.region, l.sku {JOINED}", ["region", "sku"], ["region", "sku"]),
        ("select o.id, c.region from orders o left join customers c on c.id = o.customer_id", ["id"], ["id"]),
        ("select o.id, l.id as lid from orders o left join lines l on l.order_id = o.id", ["id"], []),
        ("select id from orders union all select id from customers", ["id"], []),
        ("select follower, followee from follows", ["follower", "followee"], ["follower", "followee"]),
    ],
)
def test_a_view_has_a_key_and_what_is_unique_is_known(sql: str, key: list[str], unique: list[str]) -> None:
    plan = plan_view("v", sql, relations())

    assert (list(plan.key), list(plan.unique)) == (key, unique)
