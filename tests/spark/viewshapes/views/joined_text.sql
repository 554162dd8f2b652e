-- dialect: postgres
select author, string_agg(body, ',' order by posted_at, id) as said
from posts
group by author
