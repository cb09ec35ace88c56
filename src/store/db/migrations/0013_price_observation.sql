-- What each source of a price said in each round, and what was decided on it.
create table price_observation (
  id bigint generated always as identity primary key,
  asset text not null,
  round_at timestamptz not null,
  source text not null,
  price numeric,
  conf numeric,
  observed_at timestamptz,
  verdict text not null check (verdict in ('used', 'outlier', 'stale', 'not_positive', 'uncertain', 'failed')),
  message text,
  -- The price that its round decided on; null when it decided on none.
  price_id bigint references price (id),
  check ((verdict = 'failed') = (price is null))
);
create index price_observation_asset on price_observation (asset, round_at desc);
create index price_observation_round on price_observation (round_at);
