-- dialect: postgres
select d.tailnum, count(*) as days, max(d.miles) as miles, p.seats
from plane_days d
join planes p on p.tailnum = d.tailnum
group by d.tailnum, p.seats
having count(*) > 10
