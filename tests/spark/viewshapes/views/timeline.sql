-- dialect: postgres
select reader, max(posted_at) as newest_at, array_agg(body order by posted_at desc, id desc) as posts
from (
    select f.follower as reader, p.id, p.posted_at, p.body,
           row_number() over (partition by f.follower order by p.posted_at desc, p.id desc) as place
    from follows f
    join posts p on p.author = f.followed
) as seen
where place <= 5
group by reader
