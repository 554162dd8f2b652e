-- dialect: postgres
select o.customer_id, count(*) as n, sum(l.qty) as qty, count(l.qty) as known
from orders o
join lines l on l.order_id = o.id
where o.status = 'paid'
group by o.customer_id
