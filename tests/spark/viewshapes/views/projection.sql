-- dialect: postgres
select id, status, cents * 2 as twice, upper(status collate "C") as loud, coalesce(note, '-') as note
from orders
where cents > 300 or note is null
