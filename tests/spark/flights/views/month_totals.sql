-- dialect: postgres
select month, origin, count(*) as flights, count(*) filter (where dep_time is null) as cancelled
from flights
group by grouping sets ((month, origin), (month))
