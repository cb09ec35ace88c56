/**
 * Proves the chain that execution clients are tested with (ethereum/execution-apis). It has all five transaction types
 * and all header fields up to Prague.
 */
import assert from 'node:assert/strict';
import path from 'node:path';
import { type Hex, keccak256, toHex } from 'viem';
import { proveBlock } from '../../src/chain/proof/prove-block.ts';
import {
  encodeReceipt,
  encodeTransaction,
  headerHash,
  transactionHash,
} from '../../src/chain/proof/roots.ts';
import { testWithRealchain } from '../kit/replay.ts';
import type { Json } from '../kit/scripted-node.ts';
import { readTarGz } from '../kit/tar.ts';
import { transactionJson } from '../kit/transaction-json.ts';

type Block = Json & { hash: string; number: string; transactions: unknown[] };
type Exchange = { file: string; method: string; params: unknown[]; result: unknown };

const HEADER_FIELDS = [
  ...['parentHash', 'sha3Uncles', 'miner', 'stateRoot', 'transactionsRoot', 'receiptsRoot', 'logsBloom'],
  ...['difficulty', 'number', 'gasLimit', 'gasUsed', 'timestamp', 'extraData', 'mixHash', 'nonce'],
  ...['baseFeePerGas', 'withdrawalsRoot', 'blobGasUsed', 'excessBlobGas', 'parentBeaconBlockRoot'],
  'requestsHash',
];
const WITHDRAWAL_FIELDS = ['index', 'validatorIndex', 'address', 'amount'];

testWithRealchain('every block of chain.rlp is proved, and its transactions keep their bytes', (folder) => {
  const chain = readArchive(folder).get('tests/chain.rlp') ?? Buffer.alloc(0);
  const types: Record<string, number> = {};
  const blocks = decodeAll(chain);
  for (const { items = [] } of blocks) {
    const [header, body, , withdrawals] = items;
    assert.ok(header?.items !== undefined && body?.items !== undefined);
    const block: Json = { hash: keccak256(header.raw), ...named(HEADER_FIELDS, header) };
    block.transactions = body.items.map((item) => {
      // Typed transactions are bytes within the list. Legacy ones are lists.
      const signed = item.items === undefined ? item.content : item.raw;
      const json: Json = { ...transactionJson(toHex(signed)), hash: keccak256(signed) };
      assert.deepEqual(encodeTransaction(json), Buffer.from(signed));
      types[String(json.type)] = (types[String(json.type)] ?? 0) + 1;
      return json;
    });
    if (withdrawals !== undefined)
      block.withdrawals = withdrawals.items?.map((one) => named(WITHDRAWAL_FIELDS, one));
    const { receiptsRoot: _notInTheFile, ...checks } = proveBlock(block, []);
    const all = { headerHash: 'holds', transactionsRoot: 'holds', transactionHashes: 'none' };
    const withdrawalsRoot = (withdrawals?.items ?? []).length > 0 ? 'holds' : 'none';
    assert.deepEqual(
      checks,
      { ...all, withdrawalsRoot, isEmpty: body.items.length === 0, unencodableTypes: [] },
      `block ${String(block.number)}`,
    );
  }
  assert.equal(blocks.length, 54);
  assert.deepEqual(types, { '0x0': 196, '0x1': 23, '0x2': 23, '0x3': 6, '0x4': 1 });
});

testWithRealchain('every block in a JSON answer is proved, with its receipts if it has them', (folder) => {
  const exchanges = readExchanges(folder);
  const receipts = exchanges.flatMap(({ method, result }) =>
    method === 'eth_getBlockReceipts' && Array.isArray(result) ? result : [],
  );
  const blocks = exchanges.flatMap(({ file, method, result }) =>
    /^eth_getBlockBy/.test(method) && result !== null ? [{ file, block: result as Block }] : [],
  );
  let wholeCount = 0;
  for (const { file, block } of blocks) {
    assert.equal(headerHash(block), block.hash, file);
    if (block.transactions.some((one) => typeof one === 'string')) continue;
    const own = receipts.filter((receipt) => receipt.blockHash === block.hash);
    const { withdrawalsRoot, ...checks } = proveBlock(block, own);
    assert.notEqual(withdrawalsRoot, 'fails', file);
    const all = { headerHash: 'holds', transactionsRoot: 'holds', receiptsRoot: 'holds' };
    const none = { transactionHashes: 'none', unencodableTypes: [] };
    assert.deepEqual(checks, { ...all, ...none, isEmpty: block.transactions.length === 0 }, file);
    wholeCount += 1;
  }
  assert.deepEqual([blocks.length, wholeCount], [11, 6]);
});

testWithRealchain('every transaction in a JSON answer, of all five types, has its hash', (folder) => {
  const answers = readExchanges(folder).flatMap(({ file, method, result }) =>
    /^eth_getTransactionBy/.test(method) && result !== null ? [{ file, json: result as Json }] : [],
  );
  for (const { file, json } of answers) {
    assert.equal(transactionHash(encodeTransaction(json)), json.hash, file);
  }
  assert.equal(new Set(answers.map(({ json }) => json.type)).size, 5);
});

testWithRealchain('a receipt in a JSON answer has the bytes that the client stores', (folder) => {
  const exchanges = readExchanges(folder);
  const raw = exchanges.find(({ file }) => file.endsWith('debug_getRawReceipts/get-block-n.io'))?.result;
  const json = exchanges.find(({ file }) => file.endsWith('get-legacy-receipt.io'))?.result as Json;
  assert.ok(Array.isArray(raw) && json.blockNumber === '0x3');
  assert.equal(toHex(encodeReceipt(json, json)), raw[Number(json.transactionIndex)]);
});

function readArchive(folder: string): Map<string, Buffer> {
  return readTarGz(path.join(folder, 'execution-apis/tests.tar.gz'));
}

/** The requests and answers in the .io files, without errors. */
function readExchanges(folder: string): Exchange[] {
  const files = [...readArchive(folder)].filter(([file]) => file.endsWith('.io'));
  return files.flatMap(([file, bytes]) => {
    const lines = bytes.toString().split('\n');
    const messages = (mark: string) =>
      lines
        .filter((line) => line.startsWith(mark))
        .map((line) => JSON.parse(line.slice(mark.length)) as Json);
    const answers = messages('<< ');
    return messages('>> ').flatMap(({ method, params }, index) => {
      const result = answers[index]?.result;
      return result === undefined
        ? []
        : [{ file, method: String(method), params: params as unknown[], result }];
    });
  });
}

/** An RLP item: its bytes with and without the prefix, and its items if it is a list. */
type Item = { raw: Uint8Array; content: Uint8Array; items?: Item[] };

/** One item after the other. Source: yellow paper, appendix B. */
function decodeAll(bytes: Uint8Array): Item[] {
  const items: Item[] = [];
  for (let at = 0; at < bytes.length; ) {
    const item = decodeFirst(bytes.subarray(at));
    items.push(item);
    at += item.raw.length;
  }
  return items;
}

function decodeFirst(bytes: Uint8Array): Item {
  const [first = 0] = bytes;
  if (first < 0x80) return { raw: bytes.subarray(0, 1), content: bytes.subarray(0, 1) };
  const isList = first >= 0xc0;
  const short = first - (isList ? 0xc0 : 0x80);
  const lengthBytes = Math.max(0, short - 55);
  const start = 1 + lengthBytes;
  const size = lengthBytes === 0 ? short : Number(toHex(bytes.subarray(1, start)));
  const content = bytes.subarray(start, start + size);
  const item = { raw: bytes.subarray(0, start + size), content };
  return isList ? { ...item, items: decodeAll(content) } : item;
}

/** The parts of a list by name, in the form in which a node returns bytes. Numbers then have an even number of digits. */
function named(names: readonly string[], { items = [] }: Item): Record<string, Hex> {
  return Object.fromEntries(items.map(({ content }, index) => [names[index] ?? 'unknown', toHex(content)]));
}
