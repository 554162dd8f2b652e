-- dialect: postgres
select o.customer_id, count(*) as n, sum(l.qty) as qty
from orders o
join lines l on l.order_id = o.id
group by o.customer_id
order by n desc, o.customer_id
limit 3
