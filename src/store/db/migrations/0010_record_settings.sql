-- Settings of a record. Null and false are the behaviour of the specification: a record without settings costs nothing.
-- tokens: smallest amount by contract (hex digits, both as text); min_amount: of native coin, in wei.
alter table watched_address
  add column confirmations integer,
  add column direction text check (direction in ('in', 'out')),
  add column min_amount numeric(78, 0),
  add column tokens jsonb check (tokens <> '{}'),
  add column removed boolean not null default false,
  add column strict_order boolean not null default false;

-- release_number: held until blocks up to this number are released; null once they are.
-- turn: place in the order of its record, where that wants strict_order; held until its turn comes.
-- revision: 0 as first told; odd: its block died after an attempt, and that is told; even: it was mined again.
alter table notification
  add column release_number bigint,
  add column turn bigint,
  add column revision integer not null default 0;
update notification set release_number = block_number where state = 'held';
drop index notification_held;
create index notification_held on notification (release_number) where state = 'held';
-- First what is under way of a record, then what is held in its order: one look tells whether the next one may go.
create index notification_turn on notification (shard_id, watched_address_id, state desc, turn)
  where turn is not null and state in ('held', 'waiting');
