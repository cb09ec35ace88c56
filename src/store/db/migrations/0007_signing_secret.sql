-- What a watcher's webhooks are signed with: an HMAC key and an ed25519 private key in one ciphertext (AES-256-GCM).
-- The newest has no end; a rotation gives the others theirs and deletes those that have ended.
create table signing_secret (
  watcher_id bigint not null,
  number integer not null,
  ciphertext bytea not null,
  kek_id text not null,
  created_at timestamptz not null,
  ends_at timestamptz,
  primary key (watcher_id, number)
);
