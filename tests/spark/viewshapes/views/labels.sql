-- dialect: postgres
select o.id,
       case when o.cents is null then 'unknown' when o.cents > 500 then 'large' else 'small' end as size
from orders o
where o.status in ('new', 'paid') and o.note like '%a%'
