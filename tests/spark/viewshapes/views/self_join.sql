-- dialect: postgres
select a.follower, a.followed, a.since, b.since as back
from follows a
join follows b on a.followed = b.follower and a.follower = b.followed
