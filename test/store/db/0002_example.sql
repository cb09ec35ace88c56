-- An example of how a release changes the schema of existing databases: with a new numbered file, never by editing an earlier one.
-- It runs in one transaction before processes of the new version start to work, while processes of the old version may still write.
-- So it only adds: columns that old statements need not name, tables, indexes. Renaming and dropping wait for the next release.
-- If they can't, the file has a line `-- Breaking: why`, and processes of older versions end. It must make their statements fail, not
-- succeed with another meaning. This one isn't:
alter table watcher add column contact text;
comment on column watcher.contact is 'Contact of the tenant; null: unknown';
