-- dialect: postgres
select p.tailnum, p.manufacturer, p.model
from planes p
where not exists (select 1 from flights f where f.tailnum = p.tailnum)
