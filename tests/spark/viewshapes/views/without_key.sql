-- dialect: postgres
select c.region, o.status
from orders o
join customers c on o.customer_id = c.id
where o.cents > 500
