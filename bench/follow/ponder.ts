/**
 * Ponder as a contestant, in two versions. It is installed on demand into a folder outside the clone and runs as its users
 * start it, on the same Node.js as Chainbell.
 */
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { findFreePort } from '../../devnet/free-port.ts';
import { installPeer } from '../peer.ts';
import type { Contestant } from './contestant.ts';

export type PonderOptions = {
  /** 0.17.7 requires a version of @ponder/utils that cannot be installed, so package-0.17.7.json overrides it. */
  version: '0.16.10' | '0.17.7';
  /** How often the URL is listed. The rate limiter counts each entry separately. */
  urlCount: 1 | 20;
  /** Whether a handler for each block finds native transfers too. */
  native: boolean;
};

const PEER = fileURLToPath(new URL('./peers/ponder/', import.meta.url));

export function ponder({ version, urlCount, native }: PonderOptions): Contestant {
  const newestToken = 'select block_number as block from pub.token_transfer order by id desc limit 1';
  const newestNative = `select block_number as block from pub.native_transfer
    order by block_number desc, transaction_index desc limit 1`;
  const tokens = 'select true as is_token, amount from pub.token_transfer';
  return {
    name: `Ponder ${version}, URL ${urlCount}×, ${native ? 'tokens and native' : 'tokens only'}`,
    findsNative: native,
    async prepare({ chain, databaseUrl, startBlock, heads }) {
      const folder = await installPeer(version, PEER, `package-${version}.json`);
      const port = await findFreePort(0);
      return {
        command: [
          process.execPath,
          path.join(folder, 'node_modules/ponder/dist/esm/bin/ponder.js'),
          ...['start', '--schema', 'pub', '--port', String(port)],
        ],
        folder,
        environment: {
          PONDER_TELEMETRY_DISABLED: 'true',
          DATABASE_URL: databaseUrl,
          BENCH_RPC: chain.url,
          BENCH_WS: heads === 'WebSocket' ? chain.wsUrl : '',
          BENCH_RPC_COUNT: String(urlCount),
          BENCH_TOKEN: chain.token,
          BENCH_START: String(startBlock),
          BENCH_NATIVE: String(native),
        },
      };
    },
    newestBlockSql: native
      ? `select least(token.block, native.block) as block from (${newestToken}) as token, (${newestNative}) as native`
      : newestToken,
    transfersSql: native ? `${tokens} union all select false, amount from pub.native_transfer` : tokens,
  };
}
