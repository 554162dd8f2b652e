-- order_document in PostgreSQL's words: nested values are JSON there.
select
    o.number,
    o.status,
    o.note,
    o.placed_at,
    jsonb_build_object('id', c.id, 'name', c.name, 'email', c.email, 'language', c.profile->>'language') as customer,
    sum(l.quantity * l.price) as total,
    jsonb_agg(jsonb_build_object(
        'line', l.line, 'product', p.name, 'quantity', l.quantity, 'price', l.price) order by l.line) as lines
from shop.orders o
join shop.customers c on c.id = o.customer_id
join shop.order_lines l on l.order_number = o.number
join shop.products p on p.id = l.product_id
group by o.number, c.id
