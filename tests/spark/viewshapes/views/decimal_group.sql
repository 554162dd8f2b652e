-- dialect: postgres
select l.sku, sum(l.qty * l.price) as revenue, min(l.price) as cheapest
from lines l
group by l.sku
