-- The price feed: every accepted price in USD. The newest row of an asset is its price (spec 4.2).
create table price (
  id bigint generated always as identity primary key,
  asset text not null,
  price numeric not null check (price > 0),
  observed_at timestamptz not null,
  source text not null
);
create index price_asset on price (asset, observed_at desc, id desc);
