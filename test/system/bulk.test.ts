/**
 * A long stream of changes whose process is killed on the way, and its repetition.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request } from 'node:http';
import { test } from 'node:test';
import { issueKey } from '../../src/app/issue-keys.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import { sql } from '../../src/store/db/sql.ts';
import { BULK, type Outcome, readOutcomes, recordsOf } from '../api/notifications/bulk-story.ts';
import { startChain } from '../kit/anvil.ts';
import { createTestDatabase } from '../kit/database.ts';
import { startProgram } from '../kit/program.ts';
import { SECRET } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

const LINES = 5_500;

test('repeating a bulk stream completes it after its process was killed, with each line applied once', async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const place = parts.use(await createTestDatabase('postgres'));
  const database = await place.open();
  const keyRing = deriveKeyRing(Buffer.from(SECRET, 'base64'));
  const { key } = await issueKey({ database, keyRing }, 'acme', new Date());
  const told = new Map<number, Outcome>();
  // Killed at its first answer, then in the middle of the remaining lines, then not at all.
  for (const answersMax of [1, 2_500, LINES]) {
    const program = startProgram({
      database: place,
      rpc: [chain.url],
      startBlock: 0,
      receiver: { port: 443 },
    });
    const apiUrl = await waitUntil(() => /"api":"([^"]+)"/.exec(program.log)?.[1]);
    try {
      for await (const outcome of streamLines(apiUrl, key, answersMax === LINES)) {
        const { index = -1 } = outcome;
        assert.deepEqual(outcome, told.get(index) ?? outcome);
        told.set(index, outcome);
        if (told.size >= answersMax && answersMax < LINES) program.child.kill('SIGKILL');
      }
    } catch (error) {
      if (!program.child.killed) throw error;
    }
    assert.equal(program.child.killed, answersMax < LINES);
    program.child.kill('SIGKILL');
    await program.ended;
  }
  const stored = await database.query<{ id: string }>(sql`select id from watched_address order by address`);
  const answered = [...told.keys()].sort((a, b) => a - b).map((index) => told.get(index)?.data?.id);
  assert.equal(answered.length, LINES);
  assert.deepEqual(
    stored.map(({ id }) => id),
    answered,
  );
});

/** The answers to the same lines with the same Idempotency-Key; a body without its end leaves the last group waiting. */
async function* streamLines(apiUrl: string, key: string, hasEnd: boolean): AsyncGenerator<Outcome> {
  const stream = request(`${apiUrl}${BULK}`, {
    method: 'POST',
    agent: false,
    headers: {
      authorization: `Bearer ${key}`,
      'content-type': 'application/x-ndjson',
      'idempotency-key': 'load',
    },
  });
  const responded = once(stream, 'response');
  stream.on('error', () => {});
  stream.write(
    recordsOf(LINES)
      .map((record) => `${JSON.stringify(record)}\n`)
      .join(''),
  );
  if (hasEnd) stream.end();
  const [response] = await responded;
  yield* readOutcomes(response);
}
