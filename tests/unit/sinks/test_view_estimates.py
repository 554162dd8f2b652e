"""Which columns of a view are estimates, from its text."""

from __future__ import annotations

import pytest

from sinks.warehouse.views.estimates import estimated_columns

KLL = "kll_sketch_get_quantile_bigint(kll_sketch_agg_bigint(x), 0.5d)"


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("select a, count(*) as n, approx_count_distinct(x) as d from t group by a", set()),
        (f"select a, {KLL} as middle from t group by a", {"middle"}),
        ("select a, hll_sketch_estimate(hll_sketch_agg(x)) as Much from t group by a", {"much"}),
        ("select theta_sketch_agg(x) as s, approx_percentile(x, 0.5) as p, percentile(x, 0.5) as e from t", {"p"}),
        ("select percentile_approx(x, 0.5) as p, approx_top_k(x, 3) as k, histogram_numeric(x, 3) as h from t", "pkh"),
        (f"with s as (select a, {KLL} as m from t group by a) select a, m + 1 as n, a as b from s", {"m", "n"}),
        (f"select o.y, o.a from (select i.z as y, i.a from (select a, {KLL} as z from t) i) o", {"z", "y"}),
        (f"select a, 1 as m from t union all select a, {KLL} as m from t", {"m"}),
        ("select a, kll_count from t", set()),
        ("select 'kll_sketch_agg(x)' as a from t", set()),
        ("this is only understood (by) Spark >>", set()),
    ],
)
def test_columns_that_come_from_a_sketch_are_estimates_and_no_others(sql: str, found: set[str]) -> None:
    assert estimated_columns(sql) == set(found)


def test_column_made_of_another_views_estimate_is_one() -> None:
    assert estimated_columns("select a, round(Middle) as m, n from v", ["middle"]) == {"middle", "m"}
