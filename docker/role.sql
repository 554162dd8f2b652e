-- The role of capture: it streams and reads tables, and may do nothing else. PostgreSQL runs this once, when it creates
-- the database. The publication belongs to the superuser and contains every table of the schema, also later ones.
\getenv password CDC_PASSWORD
create role cdc login replication password :'password';
grant usage on schema public to cdc;
grant select on all tables in schema public to cdc;
alter default privileges in schema public grant select on tables to cdc;
create publication cdc_shop for tables in schema public
    with (publish_via_partition_root = true, publish_generated_columns = 'stored');
