-- dialect: postgres
select tailnum, month, day, array_agg(dest order by sched_dep_time, id) as trips, sum(distance) as miles
from flights
where tailnum is not null
group by tailnum, month, day
