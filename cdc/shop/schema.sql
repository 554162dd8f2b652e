-- A small shop for the demo. It has what real schemas have and pgbench's bank has not: an enum, numeric amounts, JSON,
-- arrays, timestamps with time zone, long texts, keys of two columns, and keys that change.

create schema shop;

create type shop.order_status as enum ('new', 'packed', 'shipped', 'returned');

create table shop.customers (
    id bigint generated always as identity primary key,
    name text not null,
    email text not null,
    tags text[] not null default '{}',
    profile jsonb not null default '{}',
    joined_on date not null default current_date
);

create table shop.products (
    id integer primary key,
    name text not null,
    price numeric(10, 2) not null check (price > 0),
    stock integer not null,
    manual text not null
);

-- `manual` has some kilobytes, so PostgreSQL stores it out of line (TOAST). An update that does not change such a value
-- does not write it to the WAL. With REPLICA IDENTITY FULL, the WAL contains the complete old row: each event is then
-- complete and also shows the previous row.
alter table shop.products alter column manual set storage external;
alter table shop.products replica identity full;

create table shop.orders (
    number bigint primary key,
    customer_id bigint not null references shop.customers,
    status shop.order_status not null default 'new',
    note text,
    placed_at timestamptz not null default clock_timestamp()
);

create table shop.order_lines (
    order_number bigint not null references shop.orders on update cascade on delete cascade,
    line smallint not null,
    product_id integer not null references shop.products,
    quantity integer not null,
    price numeric(10, 2) not null,
    primary key (order_number, line)
);

-- Customers follow each other and post. A view builds timelines from this.

create table shop.follows (
    follower_id bigint not null references shop.customers,
    followed_id bigint not null references shop.customers,
    since timestamptz not null default clock_timestamp(),
    primary key (follower_id, followed_id)
);

create table shop.posts (
    id bigint generated always as identity primary key,
    author_id bigint not null references shop.customers,
    body text not null,
    posted_at timestamptz not null default clock_timestamp()
);
