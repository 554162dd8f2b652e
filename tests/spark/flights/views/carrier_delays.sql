-- dialect: postgres
select a.name, count(*) as flights, count(f.dep_time) as flown, max(f.dep_delay) as worst,
       cast(avg(f.arr_delay) as double precision) as mean, sum(f.distance) as miles
from flights f
join airlines a on a.carrier = f.carrier
group by a.name
