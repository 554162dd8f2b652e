-- dialect: postgres
select c.id, (select max(o.cents) from orders o where o.customer_id = c.id) as most
from customers c
