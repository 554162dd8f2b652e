-- dialect: postgres
select v.region, g.n, count(*) as orders
from inner_join v
join three_way_group g on v.region = g.region
group by v.region, g.n
