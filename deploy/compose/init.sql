-- A source to begin with: one table, and what wal2lake needs (wal2lake check --sql prints such a script).
CREATE TABLE public.orders (id int PRIMARY KEY, item text NOT NULL, quantity int);
INSERT INTO public.orders VALUES (1, 'apples', 10), (2, 'pears', 20);
CREATE ROLE wal2lake LOGIN REPLICATION PASSWORD 'choose-a-password';
GRANT CONNECT ON DATABASE shop TO wal2lake;
GRANT USAGE ON SCHEMA public TO wal2lake;
GRANT SELECT ON TABLE public.orders TO wal2lake;
CREATE PUBLICATION shop FOR TABLE public.orders;
