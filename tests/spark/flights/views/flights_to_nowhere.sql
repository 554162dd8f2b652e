-- dialect: postgres
select f.dest, count(*) as flights
from flights f
left join airports p on p.faa = f.dest
where p.faa is null
group by f.dest
