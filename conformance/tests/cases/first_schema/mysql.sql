-- 1: jobs, and what the store knows about itself
create table if not exists old_meta (
    name  varbinary(32) not null,
    value varbinary(64) not null,
    primary key (name)
) engine = InnoDB row_format = dynamic default charset = utf8mb4 collate = utf8mb4_bin;
create table if not exists old_jobs (
    id         binary(16)       not null,
    queue      varchar(128)     not null,
    state      tinyint unsigned not null comment '0 ready, 1 scheduled, 2 reserved, 3 failed',
    place      smallint         not null comment 'the priority while ready, else 0',
    at_us      bigint           not null comment 'when it is due, its lease ends, or it failed',
    seq        bigint           not null comment 'the order in which equals were stored',
    priority   smallint         not null,
    due_us     bigint           not null comment 'microseconds since 1970, UTC, as every _us',
    attempts   int              not null default 0,
    lapses     int              not null default 0,
    exceptions int              not null default 0,
    token      binary(16)       not null default x'00000000000000000000000000000000' comment 'of the last delivery',
    holder     bigint unsigned  not null default 0 comment 'reserved: its worker; failed: its tenant',
    mark       bigint unsigned  not null default 0 comment 'reserved: of its token; failed: when',
    claimed_us bigint           not null default 0,
    pushed_us  bigint           not null,
    retried_us bigint           not null default 0,
    tenant     varchar(64)      not null,
    name       varchar(255)     not null,
    last_error text             null,
    envelope   mediumblob       not null,
    primary key (id),
    key line (queue, state, place, at_us, seq) comment 'filter and order of the claim; states are ranges apart',
    key held (holder, mark) comment 'what a worker holds, what a claim took, what a tenant has parked'
) engine = InnoDB row_format = dynamic default charset = utf8mb4 collate = utf8mb4_bin;
insert ignore into old_meta (name, value) values ('store', md5(concat(uuid(), rand(), now(6))));
insert into old_meta (name, value) values ('schema', 1) on duplicate key update value = 1;
-- 2: locks, counters, flags and unique keys; workers; paused queues
create table if not exists old_entries (
    name   varbinary(128)  not null comment 'locks, counters, flags and unique keys',
    value  varbinary(1024) not null,
    end_us bigint          not null,
    primary key (name),
    key ends (end_us) comment 'finds what expired'
) engine = InnoDB row_format = dynamic default charset = utf8mb4 collate = utf8mb4_bin;
create table if not exists old_workers (
    worker    varbinary(512)  not null,
    holder    bigint unsigned not null comment 'as in jobs.holder',
    lock_name varchar(64)     not null comment 'the named lock that its session holds while it lives',
    session   bigint unsigned not null,
    server    varchar(300)    not null,
    beat_us   bigint          not null,
    end_us    bigint          not null,
    primary key (worker)
) engine = InnoDB row_format = dynamic default charset = utf8mb4 collate = utf8mb4_bin;
create table if not exists old_paused (queue varchar(128) not null, primary key (queue)) engine = InnoDB row_format = dynamic default charset = utf8mb4 collate = utf8mb4_bin;
insert ignore into old_meta (name, value) values ('store', md5(concat(uuid(), rand(), now(6))));
insert into old_meta (name, value) values ('schema', 2) on duplicate key update value = 2;
insert into old_entries (name, value, end_us) values (x'636F756E7465723A32346266346236323738643064373635303064396632633732333739396533633839636435636336363163343235303731383164633165616239643261376261', x'31', 1827670835364686);
insert into old_entries (name, value, end_us) values (x'666C61673A31396438353164656665343631633435613937396565316539643861336530613532656164653932653566313063333965633932636632656534613437343138', x'736574', 9223372036854775807);
insert into old_entries (name, value, end_us) values (x'756E697175653A33303163636237663836633633373865333166646530373138636135323033626330316230646232626666356631323833613736653739366237623630303735', x'30316132333166612D393438312D373332362D386232312D353961343533383038376262', 1827670835333159);
insert into old_jobs (id, queue, state, place, at_us, seq, priority, due_us, attempts, lapses, exceptions, token, holder, mark, claimed_us, pushed_us, retried_us, tenant, name, last_error, envelope) values (x'01A231FA942171358E727706E7612F10', x'64656661756C74', 3, 0, 1796134835270296, 1796134835235128, 100, 1796134835235128, 1, 0, 1, x'C1821EA44CCFD0E20EDF7C7B1E40394A', 6611742256093466599, 1796134835270296, 0, 1796134835235128, 0, x'676C6F626578', x'7265706F72742E6275696C64', x'56616C75654572726F723A20C3A920F09F98800A0A7472616365', x'68657361706531203230323620363363306539656363633133323764643366326261336631343030373037643965313861663439356137343331613035303036393839353134373532316430330A5B2230316132333166612D393432312D373133352D386537322D373730366537363132663130222C22676C6F626578222C227265706F72742E6275696C64222C2273797374656D222C227265706F72742E6275696C64222C22222C2264656661756C74222C7B226261636B6F6666223A5B312E302C322E355D2C227472696573223A327D5D0A7B2279656172223A323032367D');
insert into old_jobs (id, queue, state, place, at_us, seq, priority, due_us, attempts, lapses, exceptions, token, holder, mark, claimed_us, pushed_us, retried_us, tenant, name, last_error, envelope) values (x'01A231FA94557701B8FE70107064ED78', x'64656661756C74', 2, 0, 1796134836309909, 1796134835285639, 3, 1796134835285639, 1, 0, 0, x'2CDBFEFB74C687789E15B7CC64730463', 1689604638950724841, 3232457513517877112, 1796134835309909, 1796134835285639, 0, x'61636D65', x'6D61696C2E73656E64', null, x'68657361706531203230323620653963633235633739383263336131656136663537363766363163666364633137623536313335663635306230303430613663633532393135656433323965660A5B2230316132333166612D393435352D373730312D623866652D373031303730363465643738222C2261636D65222C226D61696C2E73656E64222C2273797374656D222C226D61696C2E73656E64222C22222C2264656661756C74222C7B227472696573223A397D5D0A5B312C322E352C22C3A9225D');
insert into old_jobs (id, queue, state, place, at_us, seq, priority, due_us, attempts, lapses, exceptions, token, holder, mark, claimed_us, pushed_us, retried_us, tenant, name, last_error, envelope) values (x'01A231FA947D7271AFDD6E71A177CF7B', x'64656661756C74', 0, -5, 1796134835325888, 1796134835325888, -5, 1796134835325888, 0, 0, 0, x'00000000000000000000000000000000', 0, 0, 0, 1796134835325888, 0, x'61636D65', x'6D61696C2E73656E64', null, x'68657361706531203230323620643530613135303465643235373765373763663633366438663735626230323136646439656134633961323564646637316563626638323564343036343133380A5B2230316132333166612D393437642D373237312D616664642D366537316131373763663762222C2261636D65222C226D61696C2E73656E64222C2273797374656D222C226D61696C2E73656E64222C22222C2264656661756C74222C7B7D5D0A7B22746F223A22C3A9F09F9880227D');
insert into old_jobs (id, queue, state, place, at_us, seq, priority, due_us, attempts, lapses, exceptions, token, holder, mark, claimed_us, pushed_us, retried_us, tenant, name, last_error, envelope) values (x'01A231FA948173268B2159A4538087BB', x'64656661756C74', 0, 100, 1796134835330219, 1796134835330219, 100, 1796134835330219, 0, 0, 0, x'00000000000000000000000000000000', 0, 0, 0, 1796134835330219, 0, x'61636D65', x'6D61696C2E73656E64', null, x'68657361706531202D202D0A5B2230316132333166612D393438312D373332362D386232312D353961343533383038376262222C2261636D65222C226D61696C2E73656E64222C2273797374656D222C226D61696C2E73656E64222C22222C2264656661756C74222C7B22756E697175655F666F72223A33313533363030302E302C22756E697175655F6B6579223A226F6E6365227D5D0A7B7D');
insert into old_jobs (id, queue, state, place, at_us, seq, priority, due_us, attempts, lapses, exceptions, token, holder, mark, claimed_us, pushed_us, retried_us, tenant, name, last_error, envelope) values (x'01A231FA948671D89C54A9E90008F85A', x'64656661756C74', 1, 0, 4634374835338280, 1796134835338280, 100, 4634374835338280, 0, 0, 0, x'00000000000000000000000000000000', 0, 0, 0, 1796134835338280, 0, x'61636D65', x'6D61696C2E73656E64', null, x'68657361706531203230323620623436383164643863333633663361336531366332343337623166393264626438653537643630356235656666393265386439613965623261383631653761380A5B2230316132333166612D393438362D373164382D396335342D613965393030303866383561222C2261636D65222C226D61696C2E73656E64222C2273797374656D222C226D61696C2E73656E64222C22222C2264656661756C74222C7B7D5D0A7B226E223A317D');
insert into old_jobs (id, queue, state, place, at_us, seq, priority, due_us, attempts, lapses, exceptions, token, holder, mark, claimed_us, pushed_us, retried_us, tenant, name, last_error, envelope) values (x'01A231FA948F77F997477A45C308CCD5', x'5374696C6C', 0, 100, 1796134835343265, 1796134835343265, 100, 1796134835343265, 0, 0, 0, x'00000000000000000000000000000000', 0, 0, 0, 1796134835343265, 0, x'61636D65', x'6D61696C2E73656E64', null, x'68657361706531203230323620633237643964363439393939323165386335323130646364633561393561333266663761346237366166373136613836356538373630396634663532313238320A5B2230316132333166612D393438662D373766392D393734372D376134356333303863636435222C2261636D65222C226D61696C2E73656E64222C2273797374656D222C226D61696C2E73656E64222C22222C225374696C6C222C7B7D5D0A7B226E223A327D');
delete from old_meta;
insert into old_meta (name, value) values (x'736368656D61', x'32');
insert into old_meta (name, value) values (x'73746F7265', x'6166663239393261376432313938393662616264633865643635326333386131');
insert into old_paused (queue) values (x'5374696C6C');
insert into old_workers (worker, holder, lock_name, session, server, beat_us, end_us) values (x'6F6C642D776F726B6572', 1689604638950724841, x'6865736170655F33663739376437316335396132626133313266643566633335386136313333326464646565383432', 9, x'64623A33333036', 1796134835305624, 1796134836305624);
