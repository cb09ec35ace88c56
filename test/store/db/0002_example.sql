-- How a release changes the schema of databases that hold data: a numbered file of its own, never an edit of an earlier one. It runs
-- in one transaction, before any process of the new version works, while processes of the old version may still write. So it adds:
-- columns that old statements need not name, tables, indexes. Renaming and dropping wait for the release after.
alter table watcher add column contact text;
comment on column watcher.contact is 'Contact of the tenant; null: unknown';
