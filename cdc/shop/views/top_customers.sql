-- dialect: postgres
-- The ten customers who bought most, each at its place: what a cache wants.
-- key: place
-- publish: topic
select place, id, name, orders, revenue
from (
    select
        row_number() over (order by sum(l.quantity * l.price) desc, c.id) as place,
        c.id,
        c.name,
        count(distinct o.number) as orders,
        sum(l.quantity * l.price) as revenue
    from shop.customers c
    join shop.orders o on o.customer_id = c.id
    join shop.order_lines l on l.order_number = o.number
    where o.status <> 'returned'
    group by c.id, c.name
) as bought
where place <= 10
