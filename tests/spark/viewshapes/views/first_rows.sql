-- dialect: postgres
select id, cents, status
from orders
order by cents desc nulls last, id
limit 5
