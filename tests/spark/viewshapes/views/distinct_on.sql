-- dialect: postgres
select distinct on (customer_id) customer_id, id, cents
from orders
order by customer_id, cents desc, id
