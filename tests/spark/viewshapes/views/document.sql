select o.id, o.status, named_struct('id', c.id, 'region', c.region) as customer,
       sort_array(collect_list(named_struct('line', l.line, 'sku', l.sku, 'qty', l.qty))
                  filter (where l.line is not null)) as items
from orders o
left join customers c on c.id = o.customer_id
left join lines l on l.order_id = o.id
group by o.id, o.status, c.id, c.region
