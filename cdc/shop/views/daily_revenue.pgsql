-- daily_revenue in PostgreSQL's words, which has no window over event time.
select
    (o.placed_at at time zone 'utc')::date as day,
    count(distinct o.number) as orders,
    sum(l.quantity) as items,
    sum(l.quantity * l.price) as revenue
from shop.orders o
join shop.order_lines l on l.order_number = o.number
where o.status <> 'returned'
group by 1
