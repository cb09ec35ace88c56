/**
 * Ponder on the bench's chain: one token's transfers, and with BENCH_NATIVE a handler for each block.
 * bench/follow/ponder.ts gives the environment.
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
      // Its limiter starts at 20 requests per second for each URL: the same one listed 20 times lifts it.
      rpc: Array.from({ length: Number(BENCH_RPC_COUNT) }, () => BENCH_RPC),
      // Without it heads are polled for. With it Ponder does not look at the newest blocks before a further one is mined.
      ...(BENCH_WS === '' ? {} : { ws: BENCH_WS }),
      // Ten times its default, so that waiting for the next poll is not in its time.
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
