/**
 * The oracle reads the canonical chain directly from the node, with viem and without code of src/, and determines which
 * notifications must exist. `judge` compares them with the stored blocks, the rows and the received webhooks.
 */
import { type Address, createPublicClient, type Hex, http, parseAbiItem, parseEventLogs } from 'viem';

export type Found = {
  blocks: { number: number; hash: string }[];
  rows: { content: string; state: string; isAttempted: boolean }[];
  received: { id: number; content: string }[];
  /** Hashes of stored blocks that were removed, as a trigger in the database recorded them. */
  removed: string[];
};
export type Verdict = Record<
  'blocks' | 'transfers' | 'wrongBlocks' | 'lost' | 'doubled' | 'falseNotices' | 'falseRollbacks',
  number
>;
export type Oracle = {
  /** Reads the current chain. Notifications of its transfers are legitimate from now on, even after a later reorg. */
  look(): Promise<void>;
  /** Call this when all is settled. `mayRepeat`: a webhook in flight at a kill is received again, with the same id. */
  judge(found: Found, options: { mayRepeat: boolean }): Promise<Verdict>;
};

/** The content of a notification as one text. Each transfer of the suite has a different amount. */
export const contentOf = (...parts: readonly (string | bigint | null | undefined)[]): string =>
  parts.map((part) => String(part ?? '').toLowerCase()).join(' ');

type Trace = {
  traceAddress: number[];
  error?: string;
  type: string;
  action: { callType?: string; from: Hex; to?: Hex; value?: Hex };
};
const transferAbi = [
  parseAbiItem('event Transfer(address indexed from, address indexed to, uint256 value)'),
] as const;

/** A transfer on the chain, whoever watches it. */
export type ChainTransfer = {
  hash: Hex;
  type: 'COIN_TRANSFER' | 'TOKEN_TRANSFER';
  /** Sender and receiver. */
  sides: readonly [Address, Address | null];
  amount: bigint;
  asset: string;
};
export type ChainBlock = { number: number; hash: Hex; transfers: ChainTransfer[] };

/** Reads the canonical blocks from `from` to the head, with their transfers. */
export async function readBlocks(url: string, from: number): Promise<ChainBlock[]> {
  const client = createPublicClient({ transport: http(url, { batch: true, retryCount: 0 }) });
  const head = Number(await client.getBlockNumber({ cacheTime: 0 }));
  const numbers = Array.from({ length: head - from + 1 }, (_, index) => BigInt(from + index));
  const blocks = await Promise.all(
    numbers.map((blockNumber) => client.getBlock({ blockNumber, includeTransactions: true })),
  );
  const read: ChainBlock[] = [];
  for (const { number, hash, transactions } of blocks) {
    const transfers: ChainTransfer[] = [];
    for (const { hash: txHash, from: sender, to, value } of transactions) {
      const add = (
        type: ChainTransfer['type'],
        sides: ChainTransfer['sides'],
        amount: bigint,
        asset = 'eth',
      ) => transfers.push({ hash: txHash, type, sides, amount, asset });
      const { status, logs } = await client.getTransactionReceipt({ hash: txHash });
      if (status === 'success' && value > 0n) add('COIN_TRANSFER', [sender, to], value);
      for (const { args, address } of parseEventLogs({ abi: transferAbi, logs }))
        add('TOKEN_TRANSFER', [args.from, args.to], args.value, address);
      const traces = await client.request<{ Method: string; Parameters: [Hex]; ReturnType: Trace[] }>({
        method: 'trace_transaction',
        params: [txHash],
      });
      for (const { action } of movesInside(traces))
        add('COIN_TRANSFER', [action.from, action.to ?? null], BigInt(action.value ?? 0));
    }
    read.push({ number: Number(number), hash, transfers });
  }
  return read;
}

/** The calls with a value inside a transaction, without those in a call that failed. */
function movesInside(traces: readonly Trace[]): Trace[] {
  const failed = traces.filter(({ error }) => error !== undefined).map(({ traceAddress }) => traceAddress);
  const isIn = (place: readonly number[], outer: readonly number[]) =>
    outer.every((step, depth) => place[depth] === step);
  return traces.filter(
    ({ traceAddress, type, action }) =>
      traceAddress.length > 0 &&
      type === 'call' &&
      action.callType === 'call' &&
      BigInt(action.value ?? 0) > 0n &&
      !failed.some((outer) => isIn(traceAddress, outer)),
  );
}

/** `records` maps each watched address, in lower case, to the id of its record. */
export function createOracle(url: () => string, records: ReadonlyMap<string, string>, start: number): Oracle {
  const ever = new Set<string>();
  /** The judged part of the chain. A reorg below it fails the check. */
  const judged = { hashes: new Map<number, Hex>(), due: new Set<string>() };

  /** The chain above the judged part. */
  async function read(): Promise<typeof judged> {
    const blocks = await readBlocks(url(), start + judged.hashes.size);
    const due = new Set<string>();
    for (const { hash, type, sides, amount, asset } of blocks.flatMap(({ transfers }) => transfers))
      for (const side of new Set(sides)) {
        const record = records.get(side?.toLowerCase() ?? '');
        if (record !== undefined) due.add(contentOf(record, hash, type, ...sides, amount, asset));
      }
    for (const one of due) ever.add(one);
    return { hashes: new Map(blocks.map(({ number, hash }) => [number, hash])), due };
  }

  return {
    look: async () => void (await read()),
    async judge({ blocks, rows, received, removed }, { mayRepeat }) {
      const news = await read();
      for (const one of news.due) judged.due.add(one);
      for (const [number, hash] of news.hashes) judged.hashes.set(number, hash);
      const { hashes, due } = judged;
      const canonical = new Set<string>(hashes.values());
      const isRight = ({ content, isAttempted }: Found['rows'][number]) =>
        due.has(content) || (isAttempted && ever.has(content));
      const live = rows.filter(({ state }) => state !== 'withdrawn' && state !== 'cancelled');
      const told = new Set(live.filter(({ state }) => state === 'processed').map(({ content }) => content));
      const receivedOf = new Set(received.map(({ content }) => content));
      const notices = mayRepeat ? [...new Map(received.map((one) => [one.id, one])).values()] : received;
      return {
        blocks: news.hashes.size,
        transfers: news.due.size,
        wrongBlocks:
          blocks.filter(({ number, hash }) => hashes.get(number) !== hash).length +
          Math.abs(hashes.size - blocks.length),
        lost: [...due].filter((content) => !told.has(content) || !receivedOf.has(content)).length,
        doubled:
          live.length - new Set(live.map(({ content }) => content)).size + notices.length - receivedOf.size,
        falseNotices:
          live.filter((row) => !isRight(row)).length +
          received.filter(({ content }) => !ever.has(content)).length,
        falseRollbacks: removed.filter((hash) => canonical.has(hash)).length,
      };
    },
  };
}
