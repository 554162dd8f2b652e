-- dialect: postgres
select a.follower, b.followed, count(*) as n, max(b.since) as since
from follows a
join follows b on a.followed = b.follower
group by a.follower, b.followed
