-- dialect: postgres
select customer_id as id from orders
union
select follower as id from follows
