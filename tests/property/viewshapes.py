"""Shapes of views over the shop of `viewworld`, in Spark SQL, each with its expected plan. Pure data."""

from __future__ import annotations

from typing import Final

_LINES: Final = "from lines l join orders o on l.order_id = o.id join customers c on o.customer_id = c.id"
_FOLLOWED: Final = "from follows a join follows b on a.followee = b.follower"

BY_KEYS: Final[dict[str, str]] = {
    "filtered": "select id, status from orders where cents > 2",
    "projected": "select id, upper(status) as status, cents * 2 as twice from orders",
    "starred": "select * from orders where status = 'paid'",
    "looked_up": "select o.id, o.status, c.region from orders o join customers c on o.customer_id = c.id",
    "looked_up_using": "select id, tier, status from (select id as customer_no, tier from customers) c join "
    "(select id, status, customer_id as customer_no from orders) o using (customer_no)",
    "comma": "select o.id, c.region from orders o, customers c where o.customer_id = c.id and c.tier > 0",
    "left": "select o.id, o.status, c.region from orders o left join customers c "
    "on o.customer_id = c.id and c.tier = 1",
    "left_filtered": "select o.id, c.region from orders o left join customers c on o.customer_id = c.id "
    "where c.id is null or c.tier = 2",
    "left_only_right": "select c.id, c.region, o.status from customers c left join orders o on o.customer_id = c.id",
    "left_both_keys": "select o.id as oid, l.id as lid, l.qty from orders o left join lines l on l.order_id = o.id",
    "left_keyless": "select c.region, o.status from customers c left join orders o on o.customer_id = c.id",
    "left_chain": "select l.id, o.status, c.region from lines l left join orders o on l.order_id = o.id "
    "left join customers c on o.customer_id = c.id",
    "left_then_inner": "select o.id, c.region, l.sku from orders o left join customers c on o.customer_id = c.id "
    "join lines l on l.order_id = o.id",
    "right": "select c.id, o.status from orders o right join customers c on o.customer_id = c.id",
    "right_of_join": "select c.id, l.sku from lines l join orders o on l.order_id = o.id "
    "right join customers c on o.customer_id = c.id",
    "full": "select o.id as oid, c.id as cid, o.status, c.region from orders o full join customers c "
    "on o.customer_id = c.id",
    "full_keyless": "select o.status, c.region from orders o full join customers c on o.customer_id = c.id",
    "full_of_left": "select o.id as oid, c.id as cid, l.sku from orders o left join lines l on l.order_id = o.id "
    "full join customers c on o.customer_id = c.id",
    "between": "select o.id, c.id as cid from orders o join customers c on o.cents between c.tier and c.tier + 1",
    "left_between": "select o.id, c.region from orders o left join customers c on o.cents < c.tier",
    "crossed": "select o.id as oid, c.id as cid from orders o cross join customers c where o.cents = 1",
    "crossed_left": "select o.id as oid, c.id as cid, l.sku from orders o cross join customers c "
    "left join lines l on l.order_id = o.id and l.qty = c.tier",
    "null_safe": "select o.id, l.id as lid from orders o join lines l on o.cents <=> l.qty",
    "self": "select a.id, b.id as other from orders a join orders b on a.customer_id = b.customer_id and a.id < b.id",
    "mutual": f"select a.follower, a.followee {_FOLLOWED} and a.follower = b.followee",
    "semi_join": "select c.id, c.region from customers c left semi join orders o on o.customer_id = c.id",
    "anti_join": "select c.id, c.region from customers c left anti join orders o "
    "on o.customer_id = c.id and o.cents > c.tier",
    "exists": "select c.id, c.region from customers c where exists "
    "(select 1 from orders o where o.customer_id = c.id and o.status = 'paid')",
    "not_exists": "select c.id from customers c where not exists (select 1 from orders o where o.customer_id = c.id)",
    "exists_of_join": "select c.id from customers c where exists (select 1 from orders o join lines l "
    "on l.order_id = o.id where o.customer_id = c.id and l.qty > 1)",
    "exists_or": "select c.id from customers c where c.tier = 2 or exists "
    "(select 1 from orders o where o.customer_id = c.id)",
    "exists_in_exists": "select c.id from customers c where exists (select 1 from orders o where "
    "o.customer_id = c.id and not exists (select 1 from lines l where l.order_id = o.id))",
    "in": "select id, status from orders where customer_id in (select id from customers where tier > 0)",
    "in_group": "select id from orders where customer_id in "
    "(select customer_id from orders group by customer_id having count(*) > 1)",
    "not_in": "select id, region from customers where id not in (select customer_id from orders where status = 'paid')",
    "not_in_known": "select id from customers where id not in "
    "(select customer_id from orders where customer_id is not null)",
    "in_for_row": "select c.id from customers c where c.tier in "
    "(select o.cents from orders o where o.customer_id = c.id)",
    "not_in_for_row": "select c.id from customers c where c.tier not in "
    "(select o.cents from orders o where o.customer_id = c.id)",
    "value_for_row": "select c.id, (select count(*) from orders o where o.customer_id = c.id) as n from customers c",
    "value_in_where": "select c.id from customers c where "
    "(select max(o.cents) from orders o where o.customer_id = c.id) > c.tier",
    "grouped": f"select c.region, count(*) as n, sum(l.qty) as qty, avg(l.qty) as aq, min(l.qty) as lo, "
    f"max(l.qty) as hi {_LINES} group by c.region",
    "grouped_distinct": "select o.customer_id, count(distinct l.sku) as skus, count(*) as n, "
    "sort_array(collect_list(l.sku)) as bag from orders o join lines l on l.order_id = o.id group by o.customer_id",
    "grouped_left": "select c.region, o.status, count(*) as n, sum(o.cents) as cents from orders o "
    "left join customers c on o.customer_id = c.id group by c.region, o.status",
    "grouped_full": "select c.tier, count(o.id) as n, count(*) as m from orders o "
    "full join customers c on o.customer_id = c.id group by c.tier",
    "grouped_of_paid": "select o.customer_id, count(*) as n, sum(l.qty * o.cents) as q from orders o "
    "join lines l on l.order_id = o.id where o.status = 'paid' group by o.customer_id",
    "grouped_keyless": "select page, count(*) as n, count(customer_id) as known from clicks group by page",
    "grouped_by_place": "select status, count(*) as n from orders group by 1",
    "grouped_by_alias": "select cents div 2 as bucket, count(*) as n from orders group by bucket",
    "grouped_hidden": "select c.region, count(*) as n from orders o join customers c on o.customer_id = c.id "
    "group by c.region, o.status",
    "having": "select o.status, c.tier, count(*) as n from orders o join customers c on o.customer_id = c.id "
    "group by o.status, c.tier having count(*) > 1",
    "grouped_filter": "select customer_id, count(*) filter (where status = 'paid') as paid from orders "
    "group by customer_id",
    "document": "select o.id, o.status, sort_array(collect_list(struct(l.id, l.sku, l.qty)) "
    "filter (where l.id is not null)) as items from orders o left join lines l on l.order_id = o.id "
    "group by o.id, o.status",
    "distinct": f"select distinct l.sku, c.tier {_LINES}",
    "friends": f"select a.follower, b.followee, count(*) as n, max(b.since) as since {_FOLLOWED} "
    "group by a.follower, b.followee",
    "top_k": "select customer_id, id, cents, r from (select o.*, row_number() over (partition by customer_id "
    "order by cents desc, id) as r from orders o) x where r <= 2",
    "top_k_joined": "select c.id, c.region, x.id as oid from customers c join (select id, customer_id, row_number() "
    "over (partition by customer_id order by cents desc, id) as r from orders) x on x.customer_id = c.id where x.r = 1",
    "window": "select customer_id, id, sum(cents) over (partition by customer_id) as total from orders",
    "window_of_groups": "select c.region, c.tier, count(*) as n, rank() over (partition by c.region "
    "order by count(*) desc, c.tier) as r from orders o join customers c on o.customer_id = c.id "
    "group by c.region, c.tier",
    "first_of_each": "select o.id, o.cents, m.region from orders o join (select id, region, row_number() over "
    "(partition by region order by id) as r from customers) m on m.id = o.customer_id and m.r = 1",
    "qualified": "select id, customer_id from orders qualify row_number() over "
    "(partition by customer_id order by id) = 1",
    "union_all": "select id, region as word from customers union all select id, status from orders",
    "union": "select region as word from customers union select status from orders",
    "union_joined": "select o.id, c.region from orders o join customers c on o.customer_id = c.id "
    "union all select id, page from customers join clicks on customer_id = id",
    "except": "select id from customers except select customer_id from orders",
    "intersect": "select id from customers intersect select customer_id from orders",
    "with": "with paid as (select * from orders where status = 'paid'), best as (select customer_id, max(cents) "
    "as cents from paid group by customer_id) select p.id, p.cents from paid p join best b "
    "on p.customer_id = b.customer_id and p.cents = b.cents",
    "subquery": "select c.id, c.region, t.n from customers c join (select customer_id, count(*) as n from orders "
    "group by customer_id) t on t.customer_id = c.id",
    "subquery_left": "select c.id, coalesce(t.n, 0) as n from customers c left join (select customer_id, count(*) as n "
    "from orders group by customer_id) t on t.customer_id = c.id",
    "subquery_of_sums": "select o.id, t.n from orders o join (select customer_id, count(*) as n from orders "
    "group by customer_id) t on t.n = o.cents",
    "sums_of_sums": "select t.n, count(*) as customers from (select customer_id, count(*) as n from orders "
    "group by customer_id) t group by t.n",
    "subquery_filter": "select c.id from customers c join (select customer_id, sum(cents) as s from orders "
    "group by customer_id) t on t.customer_id = c.id where t.s > 3",
    "rank_joined_by_rank": "select c.id, x.id as oid from customers c join (select id, row_number() over "
    "(partition by customer_id order by id) as r from orders) x on x.r = c.tier",
    "distinct_joined": "select o.id, d.page from orders o join (select distinct customer_id, page from clicks) d "
    "on d.customer_id = o.customer_id",
    "keyless": "select k.page, c.region from clicks k join customers c on k.customer_id = c.id",
    "keyless_alone": "select page, customer_id from clicks where page = 'x'",
    "keyless_grouped": "select page, count(*) as n, count(customer_id) as known from clicks group by page",
    "in_groups": "select o.id, o.cents from orders o where o.id in (select order_id from lines group by order_id "
    "having sum(qty) > 1) and o.cents > 0",
    "in_nested": "select c.id, c.region from customers c where c.id in (select o.customer_id from orders o "
    "where o.id in (select order_id from lines where sku = 'a') "
    "and o.cents > (select sum(l.qty) from lines l where l.order_id = o.id))",
    "exists_beside": "select c.region, count(*) as n from customers c, orders o where c.id = o.customer_id "
    "and exists (select 1 from lines l join lines m on m.order_id = l.order_id where l.order_id = o.id "
    "and l.qty <> o.cents) and not exists (select 1 from lines l where l.order_id = o.id and l.qty > o.cents) "
    "group by c.region",
    "group_of_values": "select o.customer_id, count(*) as n from orders o where o.cents > "
    "(select avg(p.cents) from orders p where p.customer_id = o.customer_id) group by o.customer_id",
    "case": "select o.id, case when c.tier > 1 then 'high' when o.cents is null then 'none' else 'low' end as kind "
    "from orders o left join customers c on c.id = o.customer_id",
    "ordered": "select id, cents from orders where cents > 0 order by cents",
    "nulls_key": "select customer_id, count(*) as n from orders group by customer_id",
}
"""Kept by keys in every cut."""

FIRST_ROWS: Final[dict[str, str]] = {
    "first": "select id, cents from orders order by cents desc, id limit 3",
    "first_nulls": "select id, cents from orders order by cents desc nulls first, id desc limit 4",
    "first_groups": "select customer_id, count(*) as n, sum(cents) as s from orders group by customer_id "
    "order by n desc, s nulls last, customer_id limit 2",
    "first_joined": "select l.order_id, sum(l.qty) as qty, o.status from lines l join orders o on l.order_id = o.id "
    "join customers c on c.id = o.customer_id where c.tier > 0 group by l.order_id, o.status "
    "order by sum(l.qty) desc nulls last, l.order_id limit 3",
    "first_expression": "select id, region, tier from customers order by upper(region) desc, tier + 1, id limit 5",
    "first_distinct": "select distinct customer_id, page from clicks order by customer_id desc, page limit 3",
    "first_of_many": "select id, cents from orders order by id limit 1000",
    "first_inside": "select f.id, c.region from (select id from orders order by id limit 3) f "
    "join customers c on c.id = f.id",
    "first_keyless": "select page, customer_id from clicks order by customer_id, page limit 2",
}
"""Kept by keys in cuts that leave enough rows up to the last one."""

CONSTANTS: Final[dict[str, str]] = {
    "above_average": "select id, cents from orders where cents > (select avg(cents) from orders)",
    "above_of_others": "select id, cents from orders "
    "where cents >= (select max(tier) from customers where region = 'N')",
    "having_share": "select customer_id, sum(cents) as s from orders group by customer_id "
    "having sum(cents) > (select sum(qty) from lines where sku = 'a')",
    "constant_column": "select id, (select count(*) from follows where since = 2) as n from customers",
    "constant_exists": "select id from customers where exists (select 1 from lines where qty = 3 and sku = 'b')",
    "constant_inside": "select r.region, count(*) as n from (select region, tier from customers "
    "where tier >= (select min(since) from follows)) r group by r.region",
    "best_group": "with n as (select customer_id, count(*) as n from orders group by customer_id) "
    "select c.id, n.n from customers c join n on n.customer_id = c.id where n.n = (select max(n) from n)",
    "constant_first": "select id, cents from orders where cents >= (select min(tier) from customers) "
    "order by cents desc, id limit 3",
}
"""Kept by keys in cuts that do not change the value of a subquery that is the same for every row."""

OVER_VIEWS: Final[dict[str, str]] = {
    "v_order": "select o.id, o.customer_id, c.region from orders o left join customers c on o.customer_id = c.id",
    "v_region": "select region, count(*) as n from v_order group by region",
    "v_bags": "select o.customer_id, sort_array(collect_list(l.sku)) as bag from orders o "
    "join lines l on l.order_id = o.id group by o.customer_id",
    "v_both": "select v.id, v.region, b.bag from v_order v left join v_bags b on v.customer_id = b.customer_id",
    "v_again": "select v.region, r.n, count(*) as orders from v_order v join v_region r on v.region <=> r.region "
    "group by v.region, r.n",
    "v_total": "select count(*) as n from v_both",
    "v_missing": "select c.id from customers c where not exists (select 1 from v_bags b where b.customer_id = c.id)",
}
"""Views over views, each behind those it reads."""

RECOMPUTED: Final[dict[str, tuple[str, str]]] = {
    "total": ("select count(*) as n from orders", "all rows into one"),
    "limited_by_other": ("select id from orders order by cents desc, id limit 3", "its columns do not determine"),
    "limited_behind": ("select id from orders order by id limit 3 offset 1", "OFFSET"),
    "limited_total": ("select count(*) as n from orders order by n limit 1", "all rows into one"),
    "window_of_all": (
        "select id, row_number() over (order by id) as r from orders",
        "the partition columns of its windows",
    ),
    "other_window": (
        "select id, rank() over (partition by customer_id order by id) as r from orders",
        "the partition columns of its windows",
    ),
    "group_by_all": ("select region, count(*) as n from customers group by all", "GROUP BY ALL; write the expressions"),
    "rollup": ("select region, count(*) as n from customers group by rollup (region)", "grouping sets"),
    "natural": ("select region from customers natural join orders", "NATURAL JOIN"),
    "exploded": (
        "select id, explode(array(cents, 1)) as c from orders",
        "makes rows of a row's values",
    ),
    "total_joined": (
        "select o.id from orders o join (select max(cents) as top from orders) m on m.top = o.cents",
        "one value of all rows",
    ),
    "correlated_twice": (
        (
            "select c.id from customers c where exists (select 1 from orders o where o.customer_id = c.id and exists "
            "(select 1 from lines l where l.order_id = o.id and l.qty = c.tier))"
        ),
        "reads tables around both",
    ),
    "constant": ("select 1 as one from orders", "none of its columns identifies"),
}
"""Not kept by keys, and a part of the reason that is given."""
