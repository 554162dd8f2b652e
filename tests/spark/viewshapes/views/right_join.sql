-- dialect: postgres
select c.id, c.region, o.id as order_id, o.cents
from orders o
right join customers c on o.customer_id = c.id and o.status = 'paid'
