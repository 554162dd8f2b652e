-- What was sold on each day, by the time the order was placed (UTC): a window of one day over event time.
-- late: correct
select
    cast(window.start as date) as day,
    count(distinct o.number) as orders,
    sum(l.quantity) as items,
    sum(l.quantity * l.price) as revenue
from shop.orders o
join shop.order_lines l on l.order_number = o.number
where o.status <> 'returned'
group by window(o.placed_at, '1 day')
