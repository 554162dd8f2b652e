-- dialect: postgres
select c.id, t.id as order_id, t.cents
from customers c
cross join lateral (
    select o.id, o.cents from orders o where o.customer_id = c.id order by o.cents desc nulls last, o.id limit 2
) as t
