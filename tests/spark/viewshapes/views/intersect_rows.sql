-- dialect: postgres
select author as id from posts
intersect
select followed as id from follows
