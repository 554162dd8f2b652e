-- dialect: postgres
select carrier, percentile_disc(0.9) within group (order by dep_delay) as late,
       percentile_cont(0.5) within group (order by dep_delay) as middle
from flights
group by carrier
