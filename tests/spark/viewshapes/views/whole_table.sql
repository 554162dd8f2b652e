-- dialect: postgres
select count(*) as n, sum(cents) as cents, max(placed_at) as newest_at
from orders
