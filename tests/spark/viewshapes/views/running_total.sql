-- dialect: postgres
select id, customer_id, sum(cents) over (partition by customer_id order by id) as so_far
from orders
