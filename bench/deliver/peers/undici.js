/**
 * The limit of what a queue can reach: reads all rows at once and only POSTs them. Records nothing but its end.
 */
import { concurrency, pool, post } from './work.js';

const { rows } = await pool.query('select url, body from outbox order by id');
let next = 0;
await Promise.all(
  Array.from({ length: concurrency }, async () => {
    while (next < rows.length) await post(rows[next++]);
  }),
);
await pool.query('create table posted ()');
// The benchmark ends the process, as it ends the queues.
setInterval(() => {}, 60_000);
