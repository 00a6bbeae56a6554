create table load (
    id      bigint primary key,
    account integer not null,
    code    varchar(20) not null,
    note    text,
    amount  numeric(12, 2) not null,
    ratio   double precision,
    active  boolean not null,
    day     date not null,
    at      timestamp not null,
    seen    timestamptz not null
);
create procedure fill(first bigint, last bigint, step bigint) language plpgsql as $$
begin
    while first <= last loop
        insert into load
        select i, i % 10007, 'code-' || i % 977, 'a note of some length, number ' || i, i / 100.0, i / 7.0, i % 3 = 0,
               date '2020-01-01' + (i % 1000)::int, timestamp '2024-01-01' + i * interval '1 second',
               timestamptz '2024-01-01 00:00:00+00' + i * interval '1 second'
        from generate_series(first, least(last, first + step - 1)) i;
        commit;
        first := first + step;
    end loop;
end $$;
