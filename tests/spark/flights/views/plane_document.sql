select p.tailnum, p.model, p.seats,
       sort_array(collect_list(named_struct('carrier', a.carrier, 'name', a.name, 'flights', u.flights))
                  filter (where a.carrier is not null)) as airlines
from planes p
left join (select tailnum, carrier, count(*) as flights from flights group by tailnum, carrier) u on u.tailnum = p.tailnum
left join airlines a on a.carrier = u.carrier
group by p.tailnum, p.model, p.seats
