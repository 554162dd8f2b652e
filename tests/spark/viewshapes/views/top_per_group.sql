-- dialect: postgres
select customer_id, id, cents, place
from (
    select customer_id, id, cents,
           row_number() over (partition by customer_id order by cents desc nulls last, id) as place
    from orders
) as ranked
where place <= 3
