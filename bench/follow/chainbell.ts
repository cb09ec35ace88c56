/**
 * Chainbell as a contestant: the follower alone, as operators start it, with every recipient watched.
 */
import { fileURLToPath } from 'node:url';
import type pg from 'pg';
import type { Contestant } from './contestant.ts';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const WEBHOOK_ORIGIN = 'https://receiver.example';

export function chainbell({
  verify,
  flags = [],
}: {
  verify: 'auto' | 'off';
  flags?: readonly string[];
}): Contestant {
  return {
    name: `Chainbell, ${verify === 'off' ? 'unproved' : 'proved'}`,
    findsNative: true,
    async prepare({ chain, client, databaseUrl, folder, startBlock }) {
      await watchAll(client, chain.recipients);
      return {
        // With the flags of this process: bootstrap.mjs gives the same ones to every program.
        command: [process.execPath, ...process.execArgv, ...flags, MAIN, 'start', '--role', 'follower'],
        folder,
        environment: {
          CHAINBELL_CHAIN_ID: '31337',
          CHAINBELL_CHAIN_RPC: `${chain.url},${chain.wsUrl}`,
          CHAINBELL_CHAIN_START_BLOCK: String(startBlock),
          CHAINBELL_CHAIN_INTERNAL_TRANSFERS: 'off',
          CHAINBELL_CHAIN_VERIFY: verify,
          CHAINBELL_DATABASE_URL: databaseUrl,
          CHAINBELL_DATA_DIR: folder,
          CHAINBELL_SECRET: Buffer.alloc(32, 7).toString('base64'),
          CHAINBELL_METRICS_PORT: '0',
          CHAINBELL_LOG_FORMAT: 'json',
        },
      };
    },
    // The block is committed with its notifications.
    newestBlockSql: 'select number as block from block order by number desc limit 1',
    // A row of a block that was to be proved and was not counts as lost.
    transfersSql: `
      select kind = 'token' as is_token, amount from notification
      join block on block.number = notification.block_number where proved = ${verify === 'auto'}`,
  };
}

/** One watcher's records, as the API would have made them one by one. */
async function watchAll(client: pg.Client, addresses: readonly string[]): Promise<void> {
  await client.query(
    `with watcher as (insert into watcher (name, created_at) values ('bench', now()) returning id),
       lane as (insert into lane (shard_id, origin) select id, $1 from watcher returning id, shard_id)
     insert into watched_address (shard_id, id, watcher_id, lane_id, address, watch_coin, watch_token, webhook_url,
       created_at, updated_at)
     select shard_id, gen_random_uuid(), shard_id, id, address, true, true, $1 || '/hook', now(), now()
     from lane, unnest($2::bytea[]) as t (address)`,
    [WEBHOOK_ORIGIN, addresses.map((address) => Buffer.from(address.slice(2), 'hex'))],
  );
}
