-- dialect: postgres
select c.region, o.status, count(*) as n, sum(o.cents) as cents
from orders o
left join customers c on o.customer_id = c.id
group by c.region, o.status
