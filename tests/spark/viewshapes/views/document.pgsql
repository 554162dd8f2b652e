select o.id, o.status, jsonb_build_object('id', c.id, 'region', c.region) as customer,
       coalesce(jsonb_agg(jsonb_build_object('line', l.line, 'sku', l.sku, 'qty', l.qty) order by l.line)
                filter (where l.line is not null), '[]') as items
from orders o
left join customers c on c.id = o.customer_id
left join lines l on l.order_id = o.id
group by o.id, c.id
