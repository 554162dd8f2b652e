-- Each order with its customer and its lines, as one document: what a search index wants.
-- key: number
-- publish: topic
select
    o.number,
    o.status,
    o.note,
    o.placed_at,
    named_struct('id', c.id, 'name', c.name, 'email', c.email,
                 'language', get_json_object(c.profile, '$.language')) as customer,
    sum(l.quantity * l.price) as total,
    sort_array(collect_list(named_struct(
        'line', l.line, 'product', p.name, 'quantity', l.quantity, 'price', l.price))) as lines
from shop.orders o
join shop.customers c on c.id = o.customer_id
join shop.order_lines l on l.order_number = o.number
join shop.products p on p.id = l.product_id
group by o.number, o.status, o.note, o.placed_at, c.id, c.name, c.email, c.profile
