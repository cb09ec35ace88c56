-- For `chainbell verify`, which reads the notifications of a range of blocks, also those that are done. A few pages that
-- cost the delivery nothing: rows lie in the order of their blocks.
create index notification_block on notification using brin (block_number) with (autosummarize = on);
