/**
 * Chainbell as a contestant: the follower role alone, as operators start it, with every recipient watched.
 */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type pg from 'pg';
import type { BenchChain } from './chain.ts';
import type { Contestant } from './contestant.ts';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const WEBHOOK_ORIGIN = 'https://receiver.example';

export function chainbell({
  verify,
  processors = false,
  nodes,
  flags = [],
}: {
  verify: 'auto' | 'off';
  /** Whether the block processors derive market data of the chain's pairs and points for each swap. */
  processors?: boolean;
  /** How many addresses of the node Chainbell treats as separate nodes and compares; 1 by default. */
  nodes?: 1 | 3;
  flags?: readonly string[];
}): Contestant {
  return {
    name: `Chainbell, ${verify === 'off' ? 'unproved' : 'proved'}${processors ? ', with pairs and points' : ''}${
      nodes === undefined ? '' : `, ${nodes === 1 ? 'one node' : `${nodes} nodes`}`
    }`,
    findsNative: true,
    async prepare({ chain, client, databaseUrl, folder, startBlock }) {
      await watchAll(client, chain.recipients);
      if (processors) {
        await writeFile(path.join(folder, 'chainbell.yaml'), JSON.stringify(configOf(chain)));
        await client.query(
          `insert into price (asset, price, observed_at, source) values ('ETH', 2500, 'epoch', 'bench')`,
        );
      }
      return {
        // Pass on the flags of this process, because bootstrap.mjs gives the same ones to every program.
        command: [process.execPath, ...process.execArgv, ...flags, MAIN, 'start', '--role', 'follower'],
        folder,
        environment: {
          CHAINBELL_CHAIN_ID: '31337',
          CHAINBELL_CHAIN_RPC: chain.hosts
            .slice(0, nodes ?? 1)
            .flatMap((host) => [chain.url, chain.wsUrl].map((url) => url.replace(chain.hosts[0], host)))
            .join(),
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
    // A block is committed together with its notifications.
    newestBlockSql: 'select number as block from block order by number desc limit 1',
    // Transfers of a block that should have been proved, but was not, count as lost.
    transfersSql: `
      select kind = 'token' as is_token, amount from notification_status as n
      join block on block.number = n.block_number where proved = ${verify === 'auto'}`,
    ...(processors && {
      further: [
        { name: 'swaps', countSql: 'select count(*) from swap where usd_value > 0' },
        { name: 'awards', countSql: 'select count(*) from point' },
      ],
    }),
  };
}

/** Configures every pair, and points for the value of each swap, as spec 2.3 and 2.1 require of an ecosystem. */
function configOf({ pairs }: BenchChain) {
  const event =
    'Swap(address indexed sender,uint256 amount0In,uint256 amount1In,uint256 amount0Out,uint256 amount1Out,address indexed to)';
  return {
    pairs: pairs.map((pair) => ({
      ...pair,
      ...{ name: `T${pair.id}/ETH`, token0Decimals: 18, token1Decimals: 18, fee: 300, usdValueFrom: 1 },
      rewardPid: pair.id,
    })),
    // Another role reads prices. This price is stored before the start.
    prices: { native: { sources: [{ type: 'fixed', price: '2500' }] } },
    points: {
      rules: [
        {
          ...{ type: 'event', id: 'swap', version: 1, category: 'trading', user: 'tx.from' },
          source: { event, contracts: pairs.map(({ id }) => `pair:${id}`) },
          points: 'usd(amount1In + amount1Out, token1)',
          caps: { perUserPerDay: 1_000_000_000 },
        },
      ],
    },
  };
}

/** Stores the watched addresses of one watcher, as the API would create them one by one. */
async function watchAll(client: pg.Client, addresses: readonly string[]): Promise<void> {
  await client.query(
    `with watcher as (insert into watcher (name, created_at) values ('bench', now()) returning id),
       lane as (insert into lane (shard_id, watcher_id, origin) select id, id, $1 from watcher returning id, shard_id)
     insert into watched_address (shard_id, id, watcher_id, lane_id, address, watch_coin, watch_token, webhook_url,
       created_at, updated_at)
     select shard_id, gen_random_uuid(), shard_id, id, address, true, true, $1 || '/hook', now(), now()
     from lane, unnest($2::bytea[]) as t (address)`,
    [WEBHOOK_ORIGIN, addresses.map((address) => Buffer.from(address.slice(2), 'hex'))],
  );
}
