-- Checks of blocks that this chain was seen to honour: after a restart they are enforced without learning anew.
alter table chain add column enforced_checks text[] not null default '{}';
