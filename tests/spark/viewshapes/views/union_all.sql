-- dialect: postgres
select id, 'order' as kind from orders where cents > 500
union all
select id, 'customer' as kind from customers where tier = 2
union all
select follower as id, 'follower' as kind from follows
