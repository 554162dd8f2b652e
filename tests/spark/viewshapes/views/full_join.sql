-- dialect: postgres
select o.id as order_id, c.id as customer_id, o.status, c.region
from orders o
full join customers c on o.customer_id = c.id
