-- dialect: postgres
select origin, dest, flights, place
from (
    select origin, dest, count(*) as flights, row_number() over (partition by origin order by count(*) desc, dest collate "C") as place
    from flights
    group by origin, dest
) as ranked
where place <= 5
