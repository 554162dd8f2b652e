-- dialect: postgres
select o.customer_id, sum(o.cents) as cents
from orders o
group by o.customer_id
having count(*) >= (select min(c.tier) from customers c where c.region = 'N')
