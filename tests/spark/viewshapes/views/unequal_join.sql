-- dialect: postgres
select o.id, count(*) as n
from orders o
join customers c on o.cents < c.tier * 100
group by o.id
