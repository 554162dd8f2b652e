-- dialect: postgres
select origin, dest, count(distinct carrier) as carriers, count(distinct tailnum) as planes, min(air_time) as fastest
from flights
group by origin, dest
