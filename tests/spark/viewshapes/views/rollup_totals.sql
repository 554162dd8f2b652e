-- dialect: postgres
select region, tier, count(*) as n
from customers
group by grouping sets ((region, tier), (region))
