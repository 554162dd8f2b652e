-- An example table to capture. PostgreSQL runs this once, when it creates the database.
create table customers (
    id int generated always as identity primary key,
    name text not null,
    email text
);
