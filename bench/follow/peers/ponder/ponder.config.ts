/**
 * Ponder on the benchmark's chain: the transfers of one token, and with BENCH_NATIVE a handler for each block.
 * bench/follow/ponder.ts sets the environment variables.
 */
import { createConfig } from 'ponder';
import { parseAbi } from 'viem';

const { DATABASE_URL, BENCH_RPC, BENCH_WS, BENCH_RPC_COUNT, BENCH_TOKEN, BENCH_START, BENCH_NATIVE } =
  process.env;
const startBlock = Number(BENCH_START);
const blocks = { Every: { chain: 'anvil', interval: 1, startBlock } };

export default createConfig({
  database: { kind: 'postgres', connectionString: DATABASE_URL },
  chains: {
    anvil: {
      id: 31337,
      // The limiter starts at 20 requests per second for each URL. Listing the same URL 20 times lifts that limit.
      rpc: Array.from({ length: Number(BENCH_RPC_COUNT) }, () => BENCH_RPC),
      // Without a WebSocket, Ponder polls heads. With one, it ignores the newest blocks until a further block is mined.
      ...(BENCH_WS === '' ? {} : { ws: BENCH_WS }),
      // A tenth of the default interval, so that the result doesn't include the wait for the next poll.
      pollingInterval: 100,
      disableCache: true,
    },
  },
  contracts: {
    Token: {
      abi: parseAbi(['event Transfer(address indexed from, address indexed to, uint256 amount)']),
      chain: 'anvil',
      address: BENCH_TOKEN,
      startBlock,
    },
  },
  ...(BENCH_NATIVE === 'true' ? { blocks } : {}),
});
