-- The newest block that a quorum of the nodes was seen to have; null until a version that asks them has stored one.
alter table chain add column corroborated_number bigint;
