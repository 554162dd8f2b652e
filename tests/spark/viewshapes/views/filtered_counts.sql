-- dialect: postgres
select region, count(*) filter (where tier = 1) as first, count(*) filter (where tier is null) as none,
       bool_or(tier = 2) as some
from customers
group by region
