-- dialect: postgres
select p.faa, p.name, p.lat, p.lon
from airports p
where exists (select 1 from flights f where f.dest = p.faa)
