select o.customer_id, count(distinct o.status) as statuses, count(distinct o.cents) as amounts
from orders o
group by o.customer_id
