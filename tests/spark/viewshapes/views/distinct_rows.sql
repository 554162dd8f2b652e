-- dialect: postgres
select distinct l.sku, c.tier
from lines l
join orders o on l.order_id = o.id
join customers c on c.id = o.customer_id
