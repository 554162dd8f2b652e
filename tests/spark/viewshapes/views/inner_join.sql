-- dialect: postgres
select o.id, o.status, o.cents, c.region, c.tier
from orders o
join customers c on o.customer_id = c.id
where o.status <> 'new' and c.tier > 0
