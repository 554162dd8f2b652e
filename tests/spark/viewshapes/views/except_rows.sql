-- dialect: postgres
select id from customers
except
select customer_id as id from orders
