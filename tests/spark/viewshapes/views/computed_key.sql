-- dialect: postgres
select div(cents, 100) as bucket, count(*) as n
from orders
group by div(cents, 100)
