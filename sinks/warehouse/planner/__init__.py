"""The view planner: SQL in, SQL out. Which keys of a view a cut can have changed, and its rows of those keys. Pure.

`plan_view` (plan.py) is what others call. Behind it, in this order: `parse` (one form for all queries), `analyse`
(a tree of blocks and joins), `keys` (by which columns a view is kept), `touched` (the keys that changed), `restrict`
(the rows of these keys), `delta` (sums and counts by the product rule). It knows no Spark, clock or file.
"""
