-- Something to capture: run once, when the database is made.
create table customers (
    id int generated always as identity primary key,
    name text not null,
    email text
);
