-- dialect: postgres
select w.wind_dir, count(*) as flights, cast(avg(f.dep_delay) as double precision) as mean, max(f.air_time) as longest
from flights f
join weather w on w.origin = f.origin and w.time_hour = f.time_hour
group by w.wind_dir
