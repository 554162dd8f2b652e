-- dialect: postgres
select region, tier, count(*) as n
from customers
group by rollup (region, tier)
