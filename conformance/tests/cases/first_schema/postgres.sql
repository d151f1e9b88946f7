-- 1: the tables
do $$ begin
  if to_regnamespace('"old"') is null then create schema "old"; end if;
end $$;
create table "old".hesape_meta (
  one boolean primary key default true check (one),
  version integer not null,
  compatible integer not null,
  store_id uuid not null
);
insert into "old".hesape_meta (version, compatible, store_id) values (0, 1, gen_random_uuid());
create table "old".hesape_jobs (
  id uuid primary key,
  token uuid,
  seq bigint generated always as identity,
  arrival xid8 not null default pg_current_xact_id(),
  due_us bigint not null,
  pushed_us bigint not null,
  reserved_us bigint,
  claimed_us bigint,
  retried_us bigint,
  failed_us bigint,
  attempts integer not null default 0,
  lapses integer not null default 0,
  exceptions integer not null default 0,
  state smallint not null check (state between 0 and 3),
  priority smallint not null,
  queue text collate "C" not null,
  tenant text collate "C" not null,
  name text collate "C" not null,
  worker text collate "C" not null default '',
  last_error text,
  envelope bytea not null
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
create index hesape_ready on "old".hesape_jobs (queue, priority, due_us, seq) where state = 0;
create index hesape_arrivals on "old".hesape_jobs (arrival, queue) where state in (0, 1);
create index hesape_scheduled on "old".hesape_jobs (queue, due_us) where state = 1;
create index hesape_leases on "old".hesape_jobs (queue, reserved_us) where state = 2;
create index hesape_held on "old".hesape_jobs (worker, token) where state = 2;
create index hesape_failed on "old".hesape_jobs (failed_us, id) where state = 3;
create index hesape_failed_by_queue on "old".hesape_jobs (queue, failed_us, id) where state = 3;
create index hesape_failed_by_tenant on "old".hesape_jobs (tenant, failed_us, id) where state = 3;
create table "old".hesape_entries (
  key text collate "C" primary key,
  owner text not null default '',
  count bigint not null default 0,
  expires_us bigint
);
create index hesape_entries_expiring on "old".hesape_entries (expires_us) where expires_us is not null;
create table "old".hesape_workers (
  worker text collate "C" primary key,
  beat_us bigint not null,
  until_us bigint not null,
  lock_key bigint,
  pid integer,
  server_us bigint,
  missing_us bigint
);
create table "old".hesape_paused (queue text collate "C" primary key);
comment on column "old".hesape_jobs.state is '0 ready, 1 scheduled, 2 reserved, 3 failed';
comment on column "old".hesape_jobs.arrival is 'the transaction that made the job wait';
comment on column "old".hesape_jobs.due_us is 'microseconds since 1970, UTC, like all of these';
update "old".hesape_meta set version = 1;
insert into old.hesape_jobs (id, token, seq, due_us, pushed_us, reserved_us, claimed_us, retried_us, failed_us, attempts, lapses, exceptions, state, priority, queue, tenant, name, worker, last_error, envelope) overriding system value values ('01a231fa-7b29-7007-a38e-1e3d0cc56da0', '3bd36502-8263-65c0-4bb0-15e368c01ca0', '1', '1796134828856477', '1796134828856477', NULL, NULL, NULL, '1796134828915431', '1', '0', '1', '3', '100', 'default', 'globex', 'report.build', '', 'ValueError: é 😀

trace', E'\\x68657361706531203230323620656536613863366337326637356463666530653239666662623563386131373330636565336265386166333939383666313132396166383562336430613463310a5b2230316132333166612d376232392d373030372d613338652d316533643063633536646130222c22676c6f626578222c227265706f72742e6275696c64222c2273797374656d222c227265706f72742e6275696c64222c22222c2264656661756c74222c7b226261636b6f6666223a5b312e302c322e355d2c227472696573223a327d5d0a7b2279656172223a323032367d');
insert into old.hesape_jobs (id, token, seq, due_us, pushed_us, reserved_us, claimed_us, retried_us, failed_us, attempts, lapses, exceptions, state, priority, queue, tenant, name, worker, last_error, envelope) overriding system value values ('01a231fa-7b77-7376-a9c6-149735cc10fb', 'a89abd83-b503-d341-2d09-c6a8a227e6fe', '2', '1796134828919542', '1796134828919542', '1796134829973941', '1796134828973941', NULL, NULL, '1', '0', '0', '2', '3', 'default', 'acme', 'mail.send', 'old-worker', NULL, E'\\x68657361706531203230323620396538356139396261653864303539306338383931323865623765383031623237643131623238306135336238613832623137333464386563363736636337660a5b2230316132333166612d376237372d373337362d613963362d313439373335636331306662222c2261636d65222c226d61696c2e73656e64222c2273797374656d222c226d61696c2e73656e64222c22222c2264656661756c74222c7b227472696573223a397d5d0a5b312c322e352c22c3a9225d');
insert into old.hesape_jobs (id, token, seq, due_us, pushed_us, reserved_us, claimed_us, retried_us, failed_us, attempts, lapses, exceptions, state, priority, queue, tenant, name, worker, last_error, envelope) overriding system value values ('01a231fa-7bc7-71c3-b9e9-4cfdeba771f8', NULL, '3', '1796134828999887', '1796134828999887', NULL, NULL, NULL, NULL, '0', '0', '0', '0', '-5', 'default', 'acme', 'mail.send', '', NULL, E'\\x68657361706531203230323620373736623865306133306563333335396637343933336266653962303332643761643533666561663837363230616332643435613462623038353561306264630a5b2230316132333166612d376263372d373163332d623965392d346366646562613737316638222c2261636d65222c226d61696c2e73656e64222c2273797374656d222c226d61696c2e73656e64222c22222c2264656661756c74222c7b7d5d0a7b22746f223a22c3a9f09f9880227d');
insert into old.hesape_jobs (id, token, seq, due_us, pushed_us, reserved_us, claimed_us, retried_us, failed_us, attempts, lapses, exceptions, state, priority, queue, tenant, name, worker, last_error, envelope) overriding system value values ('01a231fa-7bcf-71ca-9874-76f59e35c09a', NULL, '4', '1796134829008876', '1796134829008876', NULL, NULL, NULL, NULL, '0', '0', '0', '0', '100', 'default', 'acme', 'mail.send', '', NULL, E'\\x68657361706531202d202d0a5b2230316132333166612d376263662d373163612d393837342d373666353965333563303961222c2261636d65222c226d61696c2e73656e64222c2273797374656d222c226d61696c2e73656e64222c22222c2264656661756c74222c7b22756e697175655f666f72223a33313533363030302e302c22756e697175655f6b6579223a226f6e6365227d5d0a7b7d');
insert into old.hesape_jobs (id, token, seq, due_us, pushed_us, reserved_us, claimed_us, retried_us, failed_us, attempts, lapses, exceptions, state, priority, queue, tenant, name, worker, last_error, envelope) overriding system value values ('01a231fa-7bdc-7599-8bf4-ed2288d2e452', NULL, '5', '4634374829021971', '1796134829021971', NULL, NULL, NULL, NULL, '0', '0', '0', '1', '100', 'default', 'acme', 'mail.send', '', NULL, E'\\x68657361706531203230323620643063323562353463636465323866653234643661316362313138636534356330306233326161373034393237656135376361353737346430353664373263310a5b2230316132333166612d376264632d373539392d386266342d656432323838643265343532222c2261636d65222c226d61696c2e73656e64222c2273797374656d222c226d61696c2e73656e64222c22222c2264656661756c74222c7b7d5d0a7b226e223a317d');
insert into old.hesape_jobs (id, token, seq, due_us, pushed_us, reserved_us, claimed_us, retried_us, failed_us, attempts, lapses, exceptions, state, priority, queue, tenant, name, worker, last_error, envelope) overriding system value values ('01a231fa-7bde-72e9-8465-f6d3bc494237', NULL, '6', '1796134829026919', '1796134829026919', NULL, NULL, NULL, NULL, '0', '0', '0', '0', '100', 'Still', 'acme', 'mail.send', '', NULL, E'\\x68657361706531203230323620336538633064396663363666383164333630323939653335666263643832346539346365663339316564396166656631643136373962316534396531636663640a5b2230316132333166612d376264652d373265392d383436352d663664336263343934323337222c2261636d65222c226d61696c2e73656e64222c2273797374656d222c226d61696c2e73656e64222c22222c225374696c6c222c7b7d5d0a7b226e223a327d');
insert into old.hesape_entries (key, owner, count, expires_us) overriding system value values ('counter:24bf4b6278d0d76500d9f2c723799e3c89cd5cc661c42507181dc1eab9d2a7ba', '', '1', '1827670829039265');
insert into old.hesape_entries (key, owner, count, expires_us) overriding system value values ('flag:19d851defe461c45a979ee1e9d8a3e0a52eade92e5f10c39ec92cf2ee4a47418', 'set', '0', NULL);
insert into old.hesape_entries (key, owner, count, expires_us) overriding system value values ('unique:301ccb7f86c6378e31fde0718ca5203bc01b0db2bff5f1283a76e796b7b60075', '01a231fa-7bcf-71ca-9874-76f59e35c09a', '0', '1827670829010238');
insert into old.hesape_workers (worker, beat_us, until_us, lock_key, pid, server_us, missing_us) overriding system value values ('old-worker', '1796134828967984', '1796134829967984', '695105546216786393', '2696', '1796134828307536', NULL);
insert into old.hesape_paused (queue) overriding system value values ('Still');
delete from old.hesape_meta;
insert into old.hesape_meta (one, version, compatible, store_id) overriding system value values ('true', '1', '1', 'ac247536-9313-47b2-a495-5e304649d507');
select setval(pg_get_serial_sequence('old.hesape_jobs', 'seq'), (select max(seq) from old.hesape_jobs));
