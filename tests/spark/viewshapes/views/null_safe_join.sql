-- dialect: postgres
select a.id, b.id as other
from customers a
join customers b on a.region is not distinct from b.region and a.tier is not distinct from b.tier and a.id < b.id
