-- The tables that the connector files here name.
create table public.inventory (id int primary key, product text, quantity int);
create schema inventory;
create table inventory.customers (id int primary key, first_name text, last_name text, email text);
create table inventory.outboxevent (id uuid primary key, aggregatetype text, aggregateid text, type text, payload jsonb);
create table public.customers (id int primary key, email text, phone text, notes text);
create table public.orders (id int primary key, customer_id int, total numeric(10, 2));
create table public.payments (id int primary key, customer_id int not null, card text);
create table public.debezium_heartbeat (id int primary key, ts timestamptz);
create table public.debezium_signal (id varchar(42) primary key, type varchar(32) not null, data varchar(2048));
create schema shard_1;
create schema shard_2;
create table shard_1.accounts (id int primary key, v text);
create table shard_2.accounts (id int primary key, v text);
create schema billing;
create table billing.invoices (id int primary key, pdf bytea, amount numeric(12, 2));
create table billing.lines (id int primary key, invoice_id int, amount numeric(12, 2));
create table public.products (id int primary key, name text, weight float8);
create table public.stock (product_id int primary key, n int);
