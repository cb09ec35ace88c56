-- Only what is held is looked for by its block all the time; an entry for everything that waits cost each notification
-- more than the index on its block costs a fork.
drop index notification_open_block;
create index notification_held on notification (block_number) where state = 'held';
