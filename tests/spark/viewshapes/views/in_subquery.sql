-- dialect: postgres
select id, status
from orders
where customer_id in (select id from customers where tier = 1)
