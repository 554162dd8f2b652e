-- dialect: postgres
select id, placed_at
from orders
order by placed_at desc, id
limit 5
