/**
 * Tells histories of one database apart.
 */
import { raw } from './sql.ts';

/**
 * The timeline of the write-ahead log that a primary writes, as an expression. A promoted standby and a recovery to a point in time begin
 * another one. A standby refuses it.
 */
export const TIMELINE = raw('left(pg_walfile_name(pg_current_wal_lsn()), 8)');
