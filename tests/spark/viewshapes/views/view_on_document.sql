-- dialect: postgres
select d.id, d.status, k.skus
from document d
join orders o on d.id = o.id
join count_distinct k on o.customer_id = k.customer_id
