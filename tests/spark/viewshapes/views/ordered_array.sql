-- dialect: postgres
select o.customer_id, array_agg(l.sku order by l.qty desc nulls last, l.order_id, l.line) as skus,
       array_agg(distinct l.sku collate "C" order by l.sku collate "C") filter (where l.qty > 1) as several
from orders o
join lines l on l.order_id = o.id
group by o.customer_id
