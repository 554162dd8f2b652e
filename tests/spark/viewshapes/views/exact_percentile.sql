-- dialect: postgres
select customer_id, percentile_disc(0.5) within group (order by cents::int) as middle,
       percentile_cont(0.25) within group (order by cents::int) as quarter
from orders
group by customer_id
