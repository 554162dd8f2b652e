-- dialect: postgres
select id, cents
from orders
where customer_id not in (select c.id from customers c where c.region = 'N')
