-- dialect: postgres
select c.region, count(*) as n, sum(l.qty) as qty, min(l.qty) as lo, max(l.qty) as hi,
       cast(avg(l.qty) as double precision) as mean
from lines l
join orders o on l.order_id = o.id
join customers c on o.customer_id = c.id
group by c.region
