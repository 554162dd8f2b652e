-- dialect: postgres
select o.id, o.status, c.region
from orders o
left join customers c on o.customer_id = c.id and c.tier = 1
