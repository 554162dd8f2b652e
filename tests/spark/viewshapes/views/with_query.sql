-- dialect: postgres
with paid as (
    select id, customer_id, cents from orders where status = 'paid'
), totals as (
    select customer_id, sum(cents) as cents, count(*) as n from paid group by customer_id
)
select c.id, c.region, t.cents, t.n
from customers c
join totals t on t.customer_id = c.id
