-- dialect: postgres
select o.id, o.cents
from orders o
where o.customer_id > (select min(c.id) from customers c)
