"""The view planner, SQL to SQL: which keys of a view a cut may have changed, and the view's rows of those keys. Pure.

`plan_view` (plan.py) is the entry point. It uses, in this order: `time_windows` (windows over event time as plain SQL),
`parse` (one form for all queries), `analyse` (a tree of blocks and joins), `view_keys` (the columns a view is kept by),
`affected_keys` (the keys that changed), `restrict` (the rows of these keys). It depends on no Spark, clock or file.
"""
