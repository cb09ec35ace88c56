import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Bundle, BundleTransaction } from '../../src/chain/blocks/bundle.ts';
import type { BundleOptions } from '../../src/chain/nodes/fetch.ts';
import { Fault } from '../../src/core/fault.ts';
import type { Hash } from '../../src/core/hex.ts';
import type { BlockReference } from '../../src/domain/block.ts';
import { createReadAhead, type ReadAhead } from '../../src/ingest/read-ahead.ts';
import { extractNothing } from '../../src/ingest/read-block.ts';
import { headerOf } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';

/** How long a few blocks wait for more. */
const PATIENCE_MS = 250;
const { signal } = new AbortController();
const head = headerOf(1_000);
/** keccak256("Transfer(address,address,uint256)"), EIP-20. */
const TRANSFER: Hash = '0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef';

const MEBIBYTE = 1024 * 1024;

type Request = {
  references: readonly BlockReference[];
  signal: AbortSignal;
  /** Simulates the arrival of so many bytes of JSON. */
  receive(bytes: number): void;
  answer(bundles?: Bundle[]): void;
  fail(): void;
};

/** A reader over a node whose requests wait until the test answers them. */
function openReader(patienceMs = PATIENCE_MS) {
  const requests: Request[] = [];
  const clock = createTestClock();
  const nodes = {
    bundles(
      references: readonly BlockReference[],
      abort: AbortSignal,
      { onBytes = () => {} }: BundleOptions = {},
    ): Promise<Bundle[]> {
      const { promise, resolve, reject } = Promise.withResolvers<Bundle[]>();
      abort.addEventListener('abort', () => reject(new Fault('unavailable', 'no longer wanted')));
      requests.push({
        references,
        signal: abort,
        receive: onBytes,
        answer: (bundles = references.map((one) => bundleOf(one))) => resolve(bundles),
        fail: () => reject(new Fault('unavailable', 'the node fails')),
      });
      return promise;
    },
  };
  return {
    readAhead: createReadAhead({ nodes, clock, extract: extractNothing, patienceMs }),
    requests,
    clock,
  };
}

test('a call after its caller has stopped fails, because one that returned nothing would be repeated for ever', async () => {
  const reader = openReader();
  const from = await warmUp(reader);
  await assert.rejects(reader.readAhead.next(from, head, AbortSignal.abort()), Fault);
  assert.equal(reader.requests.length, 0);
});

function bundleOf(reference: BlockReference, logCount = 0): Bundle {
  const number = typeof reference === 'number' ? reference : head.number;
  const topics = [TRANSFER, head.hash, head.hash];
  const logs = Array.from({ length: logCount }, () => ({ address: head.hash, topics, data: head.hash }));
  const none = { from: head.hash, to: undefined, value: undefined, succeeded: true, calls: [] };
  const transactions: BundleTransaction[] = logCount === 0 ? [] : [{ hash: head.hash, ...none, logs }];
  return { header: headerOf(number), transactions, proved: true, traced: true };
}

/** Waits until everything that the last answer triggered is done. */
const settled = () => new Promise((resolve) => setImmediate(resolve));

type Reader = ReturnType<typeof openReader>;

/** The numbers of the returned blocks when no further answer arrives. */
async function handedOut({ clock }: Reader, next: ReturnType<ReadAhead['next']>): Promise<number[]> {
  // If it waits for more, it has begun to by now.
  await settled();
  clock.advance(PATIENCE_MS);
  return (await next).map(({ header }) => header.number);
}

/** Takes the next blocks: of the requests that are on their way, answered in the opposite order. */
async function take(reader: Reader, from: number): Promise<number[]> {
  const next = reader.readAhead.next(from, head, signal);
  for (const request of reader.requests.splice(0).reverse()) request.answer();
  return handedOut(reader, next);
}

/** Reads until requests have more than one block, drops the requests under way, and returns the next height. */
async function warmUp(reader: Reader): Promise<number> {
  let from = 1;
  for (let round = 0; round < 4; round += 1) from += (await take(reader, from)).length;
  reader.readAhead.drop();
  reader.requests.splice(0);
  return from;
}

test('every block up to the head is handed out once and in order, whatever the order of the answers', async () => {
  const reader = openReader();
  const numbers: number[] = [];
  while (numbers.length < head.number) numbers.push(...(await take(reader, numbers.length + 1)));
  assert.deepEqual(
    numbers,
    Array.from({ length: head.number }, (_, index) => index + 1),
  );
});

test('no block above the head is requested, and the head itself is requested by its hash', async () => {
  const { readAhead, requests } = openReader();
  assert.deepEqual(await readAhead.next(head.number + 1, head, signal), []);
  const next = readAhead.next(head.number, head, signal);
  assert.deepEqual(
    requests.map(({ references }) => references),
    [[head.hash]],
  );
  requests[0]?.answer();
  assert.equal((await next).length, 1);
  assert.equal(requests.length, 1);
});

test('at first one block is requested; then four requests are under way, each of at most 30 blocks and twice as large as the last', async () => {
  const reader = openReader();
  const { readAhead, requests } = reader;
  const first = readAhead.next(1, head, signal);
  assert.deepEqual(
    requests.map(({ references }) => references),
    [[1]],
  );
  requests.splice(0)[0]?.answer();
  await handedOut(reader, first);
  let largest = 1;
  for (let from = 2; from < 900; ) {
    const next = readAhead.next(from, head, signal);
    assert.ok(requests.length <= 4);
    for (const { references } of requests) {
      assert.ok(references.length <= Math.min(30, largest * 2), `${references.length} after ${largest}`);
    }
    largest = Math.max(largest, ...requests.map(({ references }) => references.length));
    for (const request of requests.splice(0)) request.answer();
    from += (await handedOut(reader, next)).length;
  }
  assert.equal(largest, 30);
});

test('the blocks that wait for the database are limited, and so are the blocks of one commit', async () => {
  const reader = openReader();
  const from = await warmUp(reader);
  const { readAhead, requests } = reader;
  const next = readAhead.next(from, head, signal);
  let begun = 0;
  // Each answer starts one more request, until there are enough.
  while (requests.length > 0) {
    begun += requests.length;
    for (const request of requests.splice(0)) request.answer();
    await settled();
  }
  // Returned blocks, and blocks that wait or are under way.
  const first = await next;
  assert.ok(first.length > 30 && first.length <= 100, String(first.length));
  assert.ok(begun > 12 && begun <= 24, String(begun));
  const second = await readAhead.next(from + first.length, head, signal);
  assert.ok(second.length > 30 && second.length <= 100, String(second.length));
});

test('of large blocks, few wait for the database, and few are in one commit', async () => {
  const reader = openReader();
  const { readAhead, requests } = reader;
  const perBlock = 2_000;
  let from = 1;
  for (let round = 0; round < 6; round += 1) {
    const next = readAhead.next(from, head, signal);
    let begun = 0;
    // Each answer starts one more request, until there are enough.
    while (requests.length > 0) {
      begun += requests.flatMap(({ references }) => references).length;
      for (const { references, receive, answer } of requests.splice(0)) {
        receive(references.length * MEBIBYTE);
        answer(references.map((one) => bundleOf(one, perBlock)));
      }
      await settled();
    }
    assert.ok(begun <= 16, `${begun} blocks begun`);
    const transfers = (await next).flatMap((block) => block.transfers);
    assert.ok(transfers.length <= 5_000, `${transfers.length} transfers at once`);
    from += (await next).length;
  }
});

test('large blocks and slow nodes make the requests smaller', async () => {
  for (const burden of ['bytes', 'time'] as const) {
    const reader = openReader();
    const from = await warmUp(reader);
    const { readAhead, requests, clock } = reader;
    const next = readAhead.next(from, head, signal);
    const before = requests.map(({ references }) => references.length);
    if (burden === 'time') clock.advance(5_000);
    for (const { references, receive, answer } of requests.splice(0)) {
      if (burden === 'bytes') receive((references.length * MEBIBYTE) / 2);
      answer();
    }
    await handedOut(reader, next);
    readAhead.drop();
    void readAhead.next(from, head, signal);
    const after = requests.map(({ references }) => references.length);
    assert.ok(Math.max(...after) < Math.max(...before), `${burden}: ${before.join()} then ${after.join()}`);
  }
});

test('a request for several blocks that exceeds 16 MiB is aborted with those after it, and one block is requested', async () => {
  const reader = openReader();
  const from = await warmUp(reader);
  const { readAhead, requests } = reader;
  const next = readAhead.next(from, head, signal);
  const [first, second, ...others] = requests.splice(0);
  assert.ok(first !== undefined && second !== undefined && others.length > 0);
  second.receive(16 * MEBIBYTE);
  assert.ok(!second.signal.aborted);
  second.receive(1);
  assert.ok(second.signal.aborted);
  await settled();
  assert.ok(others.every((request) => request.signal.aborted) && !first.signal.aborted);
  assert.equal(requests.length, 0, 'while another one is on its way');
  first.receive(MEBIBYTE);
  first.answer();
  const numbers = await handedOut(reader, next);
  assert.deepEqual(numbers, first.references);
  for (const { references, answer } of requests.splice(0)) {
    assert.equal(references.length, 1);
    answer();
  }
  const [following] = await handedOut(reader, readAhead.next(from + numbers.length, head, signal));
  assert.equal(following, second.references[0]);
});

test('one block of any size is read alone, and no request begins while it waits', async () => {
  const reader = openReader();
  const from = await warmUp(reader);
  const { readAhead, requests } = reader;
  const next = readAhead.next(from, head, signal);
  for (const { receive } of requests.splice(0)) receive(17 * MEBIBYTE);
  const begun: (readonly BlockReference[])[] = [];
  await settled();
  while (requests.length > 0) {
    assert.equal(requests.length, 1);
    for (const { references, receive, answer, signal: abort } of requests.splice(0)) {
      begun.push(references);
      receive(200 * MEBIBYTE);
      assert.ok(!abort.aborted);
      answer();
    }
    await settled();
  }
  assert.deepEqual(
    (await next).map(({ header }) => header.number),
    [from],
  );
  assert.deepEqual(begun, [[from], [from + 1]], 'one is handed out, and one waits');
});

test('blocks that fill a request are requested one by one, four at a time; larger or slower ones fewer at a time', async () => {
  for (const { mebibytes, ms, underWay } of [
    { mebibytes: 1.5, ms: 400, underWay: 4 },
    { mebibytes: 1.5, ms: 3_000, underWay: 4 },
    { mebibytes: 3, ms: 400, underWay: 2 },
    { mebibytes: 9, ms: 400, underWay: 1 },
    { mebibytes: 1.5, ms: 6_000, underWay: 1 },
  ]) {
    const reader = openReader();
    const { readAhead, requests, clock } = reader;
    let from = 1;
    for (let round = 0; round < 3; round += 1) {
      const next = readAhead.next(from, head, signal);
      clock.advance(ms);
      for (const { receive, answer } of requests.splice(0)) {
        receive(mebibytes * MEBIBYTE);
        answer();
      }
      from += (await handedOut(reader, next)).length;
    }
    readAhead.drop();
    requests.splice(0);
    void readAhead.next(from, head, signal);
    assert.deepEqual(
      requests.map(({ references }) => references.length),
      Array.from({ length: underWay }, () => 1),
      `${mebibytes} MiB in ${ms} ms`,
    );
  }
});

test('a block beyond 16 MiB is requested again, alone, if other requests were under way', async () => {
  const reader = openReader();
  const { readAhead, requests } = reader;
  const first = readAhead.next(1, head, signal);
  for (const { receive, answer } of requests.splice(0)) {
    receive(1.5 * MEBIBYTE);
    answer();
  }
  const from = 1 + (await handedOut(reader, first)).length;
  const begun = requests.splice(0);
  assert.deepEqual(
    begun.map(({ references }) => references.length),
    [1, 1, 1, 1],
  );
  const next = readAhead.next(from, head, signal);
  begun[0]?.receive(16 * MEBIBYTE + 1);
  assert.ok(begun[0]?.signal.aborted);
  await settled();
  assert.ok(begun.every((request) => request.signal.aborted));
  assert.deepEqual(
    requests.map(({ references }) => references),
    [[from]],
  );
  const [alone] = requests.splice(0);
  alone?.receive(200 * MEBIBYTE);
  assert.ok(!alone?.signal.aborted);
  alone?.answer();
  assert.deepEqual(await handedOut(reader, next), [from]);
});

test('after huge blocks, requests grow again', async () => {
  const reader = openReader();
  let from = await warmUp(reader);
  const { readAhead, requests } = reader;
  const largest: number[] = [];
  for (let round = 0; round < 16; round += 1) {
    const next = readAhead.next(from, head, signal);
    if (requests.length > 0) largest.push(Math.max(...requests.map(({ references }) => references.length)));
    const isHuge = largest.length < 4;
    for (let asked = requests.splice(0); asked.length > 0; asked = requests.splice(0)) {
      for (const { references, receive, answer } of asked) {
        receive(references.length * (isHuge ? 20 : 0.01) * MEBIBYTE);
        answer();
      }
      await settled();
    }
    from += (await next).length;
  }
  assert.ok(Number(largest[0]) > 1, String(largest));
  assert.deepEqual(largest.slice(1, 4), [1, 1, 1], String(largest));
  assert.ok(largest.slice(4).includes(30), String(largest));
});

test('after a Fault, all requests are aborted, and one block is requested', async () => {
  const reader = openReader();
  const from = await warmUp(reader);
  const { readAhead, requests } = reader;
  const next = readAhead.next(from, head, signal);
  const [first, ...others] = requests.splice(0);
  assert.ok(others.length > 0);
  first?.fail();
  await assert.rejects(next, Fault);
  assert.ok(others.every((request) => request.signal.aborted));
  const again = readAhead.next(from, head, signal);
  assert.deepEqual(
    requests.map(({ references }) => references),
    [[from]],
  );
  requests[0]?.answer();
  assert.equal((await handedOut(reader, again)).length, 1);
});

test('a call with another height than expected drops all requests, and returns no earlier blocks', async () => {
  const reader = openReader();
  const from = await warmUp(reader);
  const { readAhead, requests } = reader;
  void readAhead.next(from, head, signal).catch(() => {});
  const begun = requests.splice(0);
  const next = readAhead.next(from - 3, head, signal);
  assert.ok(begun.length > 0 && begun.every((request) => request.signal.aborted));
  for (const request of [...begun, ...requests]) request.answer();
  assert.equal((await handedOut(reader, next))[0], from - 3);
});

test('without patience, blocks that are there are returned at once', async () => {
  const reader = openReader(0);
  const from = await warmUp(reader);
  const { readAhead, requests, clock } = reader;
  const next = readAhead.next(from, head, signal);
  const [first, second] = requests;
  second?.answer();
  await settled();
  first?.answer();
  const numbers = (await next).map(({ header }) => header.number);
  const expected = [first, second].flatMap((request) => request?.references ?? []);
  assert.deepEqual(numbers, expected);
  assert.deepEqual(clock.waits(), []);
});

test('a few blocks wait briefly for requests under way, but not after a Fault', async () => {
  for (const end of ['they come', 'they take long', 'they fail'] as const) {
    const reader = openReader();
    const from = await warmUp(reader);
    const { readAhead, requests, clock } = reader;
    let isHandedOut = false;
    const next = readAhead.next(from, head, signal).finally(() => {
      isHandedOut = true;
    });
    const [first, second, third] = requests;
    first?.answer();
    await settled();
    assert.ok(!isHandedOut, 'it does not wait');
    second?.answer();
    if (end === 'they come') for (const request of requests.slice(2)) request.answer();
    if (end === 'they fail') third?.fail();
    await settled();
    if (end === 'they take long') clock.advance(PATIENCE_MS);
    const numbers = (await next).map(({ header }) => header.number);
    assert.deepEqual(
      numbers,
      Array.from(numbers, (_, index) => from + index),
    );
    const ofTwo = (first?.references.length ?? 0) + (second?.references.length ?? 0);
    assert.ok(end === 'they come' ? numbers.length > ofTwo : numbers.length === ofTwo, end);
    // Nothing is left of the wait.
    assert.deepEqual(clock.waits(), []);
    if (end !== 'they fail') continue;
    await assert.rejects(readAhead.next(from + numbers.length, head, signal), Fault);
  }
});

test('blocks are returned at once if no other request is under way', async () => {
  const { readAhead, requests, clock } = openReader();
  const next = readAhead.next(head.number, head, signal);
  requests[0]?.answer();
  assert.equal((await next).length, 1);
  assert.deepEqual(clock.waits(), []);
});
