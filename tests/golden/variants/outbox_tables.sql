create table inventory.outbox(id uuid not null primary key, aggregatetype varchar(255) not null, aggregateid varchar(255), type varchar(255) not null, payload jsonb, tenant varchar(20) default 'deft', happened timestamp, part int, hms timestamp(3), tz timestamptz, ver int, txt text, bin bytea, num numeric(10,2), arr int[], big bigint, small smallint default 3, flag boolean);
create table inventory.outbox_text(id text primary key, aggregatetype text, aggregateid int, type text, payload text);
create table inventory.outbox_bin(id int primary key, aggregatetype text, aggregateid bigint not null, type text, payload bytea);
create table inventory.plain(id int primary key, v text);
