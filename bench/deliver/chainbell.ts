/**
 * Chainbell's delivery as a contestant: stores rows as the follower writes them, then runs the delivery role alone.
 */
import { fileURLToPath } from 'node:url';
import type pg from 'pg';
import { issueKey } from '../../src/app/issue-keys.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import { openDatabase } from '../../src/store/db/open.ts';
import type { Program } from '../program.ts';
import { hostOf, type Sink } from './stage.ts';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const SECRET = Buffer.alloc(32, 7);

/** A watcher with a key and one watched address, whose webhooks go to one receiver. */
export type Watcher = { id: number; laneId: number; url: string };

/** Makes `count` watchers. Watcher n uses receiver number `n % hosts`. */
export async function makeWatchers(
  client: pg.Client,
  {
    databaseUrl,
    sink,
    count,
    hosts,
    path = '/hook',
  }: {
    databaseUrl: string;
    sink: Sink;
    count: number;
    hosts: { first: number; count: number };
    path?: string;
  },
): Promise<Watcher[]> {
  const database = await openDatabase({ url: databaseUrl, dataDir: '' });
  const keyRing = deriveKeyRing(SECRET);
  const watchers: Watcher[] = [];
  try {
    for (let index = 0; index < count; index += 1) {
      const host = hostOf(hosts.first + (index % hosts.count));
      const origin = `${sink.protocol}://${host}:${sink.port}`;
      const name = `watcher ${hosts.first} ${index}`;
      const { watcherId: id } = await issueKey({ database, keyRing }, name, new Date());
      const { rows } = await client.query<{ id: string }>(
        'insert into lane (shard_id, watcher_id, origin) values ($1, $1, $2) returning id',
        [id, origin],
      );
      const laneId = Number(rows[0]?.id);
      const url = `${origin}${path}`;
      await client.query(
        `insert into watched_address (shard_id, id, watcher_id, lane_id, address, watch_coin, watch_token, webhook_url,
           created_at, updated_at)
         values ($1, gen_random_uuid(), $1, $2, decode(lpad(to_hex($1::bigint), 40, '0'), 'hex'), true, true, $3, now(), now())`,
        [id, laneId, url],
      );
      watchers.push({ id, laneId, url });
    }
  } finally {
    await database.close();
  }
  return watchers;
}

/** Inserts `count` due notifications for each watcher and the database notification for them, in one transaction. */
export async function insertDue(
  client: pg.Client,
  watchers: readonly Watcher[],
  count: number,
): Promise<void> {
  const laneIds = watchers.map(({ laneId }) => laneId);
  await client.query('begin');
  await client.query(
    `with made as materialized (
       select nextval('notification_id_seq') as id, clock_timestamp()::timestamptz(3) as at, w.* from (
         select w.shard_id, w.lane_id, w.id as record_id, w.address, n
         from watched_address w, generate_series(1, $2) as n where w.lane_id = any($1::bigint[])
         order by n, w.id) as w
     ), written as (
       insert into notification (shard_id, id, created_at, block_number, ordinal, kind, watched_address_id, tx_hash, sender,
         receiver, token, amount)
       select shard_id, id, at, 1, 0, 't', record_id, sha256(gen_random_uuid()::text::bytea), address, address, address,
         1000000000000000000 + n
       from made order by id
     )
     insert into queue (shard_id, id, created_at, lane_id, due_at, watched_address_id, state)
     select shard_id, id, at, lane_id, at, record_id, 'waiting' from made order by id`,
    [laneIds, count],
  );
  await client.query(
    'update lane set next_due = least(next_due, clock_timestamp()) where id = any($1::bigint[])',
    [laneIds],
  );
  await client.query(
    `insert into watcher_queue as q (watcher_id, next_due)
     select distinct watcher_id, clock_timestamp() from lane where id = any($1::bigint[])
     on conflict (watcher_id) do update set next_due = least(q.next_due, excluded.next_due)`,
    [laneIds],
  );
  await client.query("select pg_notify('chainbell_lane', $1)", [
    laneIds.length <= 500 ? laneIds.join() : '*',
  ]);
  await client.query('commit');
}

/** The process as operators start it, with the delivery role alone or with further roles. */
export function deliveryProgram({
  databaseUrl,
  sink,
  folder,
  roles = 'delivery',
  flags = [],
}: {
  databaseUrl: string;
  sink: Sink;
  folder: string;
  roles?: string;
  flags?: readonly string[];
}): Program {
  return {
    // Pass on the flags of this process, because bootstrap.mjs gives the same ones to every program.
    command: [process.execPath, ...process.execArgv, ...flags, MAIN, 'start', '--role', roles],
    folder,
    environment: {
      CHAINBELL_CHAIN_ID: '31337',
      CHAINBELL_CHAIN_RPC: 'http://127.0.0.1:1',
      CHAINBELL_DATABASE_URL: databaseUrl,
      CHAINBELL_DATA_DIR: folder,
      CHAINBELL_SECRET: SECRET.toString('base64'),
      CHAINBELL_METRICS_PORT: '0',
      CHAINBELL_LOG_FORMAT: 'json',
      CHAINBELL_WEBHOOKS_ALLOW_HTTP: String(sink.protocol === 'http'),
      CHAINBELL_WEBHOOKS_ALLOW_CIDRS: '127.0.0.0/8',
      CHAINBELL_WEBHOOKS_PORTS: String(sink.port),
      ...(sink.caFile !== undefined && { CHAINBELL_WEBHOOKS_CA_FILE: sink.caFile }),
    },
  };
}
