-- dialect: postgres
select o.customer_id, count(distinct l.sku) as skus, count(distinct l.qty) as quantities
from orders o
join lines l on l.order_id = o.id
group by o.customer_id
