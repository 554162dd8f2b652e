-- dialect: postgres
select (placed_at at time zone 'utc')::date as day, count(*) as n, sum(cents) as cents
from orders
group by (placed_at at time zone 'utc')::date
