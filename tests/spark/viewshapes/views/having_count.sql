-- dialect: postgres
select o.status, c.tier, count(*) as n
from orders o
join customers c on o.customer_id = c.id
group by o.status, c.tier
having count(*) > 2
