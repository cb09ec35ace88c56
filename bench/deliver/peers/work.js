/**
 * The work of every job queue for one job: read its row, POST it, and record the outcome and the attempt in one statement.
 */
import { readFileSync } from 'node:fs';
import pg from 'pg';
import { Agent, request } from 'undici';

export const databaseUrl = process.env.DATABASE_URL;
/** Concurrent jobs: as many requests as Chainbell sends to its receivers in this benchmark. */
export const concurrency = Number(process.env.CONCURRENCY);

export const pool = new pg.Pool({ connectionString: databaseUrl, max: 10 });
const caFile = process.env.CA_FILE ?? '';
const agent = new Agent({
  connections: 128,
  connect: caFile === '' ? {} : { ca: readFileSync(caFile, 'utf8') },
});

export async function deliver(id) {
  const { rows } = await pool.query({
    name: 'read',
    text: 'select id, url, body from outbox where id = $1 and processed_at is null',
    values: [id],
  });
  const [row] = rows;
  if (row === undefined) return;
  const startedAt = new Date();
  const statusCode = await post(row);
  await pool.query({
    name: 'record',
    text: `with attempt as (
             insert into attempt (outbox_id, started_at, duration_ms, status) values ($1, $2, $3, $4)
           )
           update outbox set processed_at = now() where id = $1`,
    values: [id, startedAt, Date.now() - startedAt.getTime(), statusCode],
  });
}

/** POSTs a row's body and returns the status. */
export async function post(row) {
  const { statusCode, body } = await request(row.url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: 'Bearer key' },
    body: row.body,
    dispatcher: agent,
    signal: AbortSignal.timeout(10_000),
  });
  await body.dump();
  if (statusCode < 200 || statusCode > 299) throw new Error(`HTTP ${statusCode}`);
  return statusCode;
}
