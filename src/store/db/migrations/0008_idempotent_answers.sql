-- What was answered to requests with an Idempotency-Key, kept in the transaction that did what they asked for. A long
-- request has several parts, each a transaction of its own.
create table idempotent_answer (
  shard_id bigint not null,
  key text not null,
  part integer not null,
  digest bytea not null,
  answer text not null,
  created_at timestamptz not null,
  primary key (shard_id, key, part)
);
create index idempotent_answer_created on idempotent_answer (created_at);
