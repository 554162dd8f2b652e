-- dialect: postgres
select big.status, count(*) as n
from (select status, cents from orders where cents > 200) as big
group by big.status
