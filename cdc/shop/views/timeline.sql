-- dialect: postgres
-- What each customer sees: the twenty newest posts of those they follow, newest first. It is PostgreSQL's own query.
-- key: customer_id
-- publish: topic
select
    customer_id,
    max(posted_at) as newest_at,
    array_agg(name || ': ' || body order by posted_at desc, id desc) as posts
from (
    select
        f.follower_id as customer_id,
        p.id,
        p.body,
        p.posted_at,
        a.name,
        row_number() over (partition by f.follower_id order by p.posted_at desc, p.id desc) as place
    from shop.follows f
    join shop.posts p on p.author_id = f.followed_id
    join shop.customers a on a.id = p.author_id
) as seen
where place <= 20
group by customer_id
