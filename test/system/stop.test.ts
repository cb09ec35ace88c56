/**
 * Stops the real program while clients hold connections in many ways.
 */
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { test } from 'node:test';
import { issueKey } from '../../src/app/issue-keys.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import { sql } from '../../src/store/db/sql.ts';
import { createTestDatabase } from '../kit/database.ts';
import { startProgram } from '../kit/program.ts';
import { SECRET } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

/** More data than the sockets can buffer. */
const RECORDS = 20_000;
const get = (path: string, key: string, headers = '') =>
  `GET /api/notifications/${path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\n${headers}\r\n`;
const post = (path: string, key: string, headers: string) =>
  `POST /api/notifications/watched-addresses${path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\n${headers}\r\n`;
const LIVEZ = 'GET /livez HTTP/1.1\r\nHost: a\r\n\r\n';
const LINES = 'Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n';

/** The bytes that each client sends. No client closes its connection. For those that read: whether they are idle. */
const clients: Record<string, { text(key: string): string; reads: 'nothing' | 'when idle' | 'when busy' }> = {
  'reads attempts': { text: (key) => get('attempts/stream', key), reads: 'when idle' },
  'reads no attempts': {
    text: (key) => get('attempts/stream', key, 'Last-Event-ID: 0\r\n'),
    reads: 'nothing',
  },
  'asked for more behind attempts': {
    text: (key) => get('attempts/stream', key) + LIVEZ,
    reads: 'when idle',
  },
  'reads no list': { text: (key) => get('watched-addresses', key), reads: 'nothing' },
  'sent nothing': { text: () => '', reads: 'when idle' },
  'keeps its connection for later': { text: () => LIVEZ, reads: 'when idle' },
  'sent half of its second request': { text: () => `${LIVEZ}GET /livez HTT`, reads: 'when idle' },
  'sent half of a body': {
    text: (key) => `${post('', key, 'Content-Type: application/json\r\nContent-Length: 100\r\n')}{`,
    reads: 'when busy',
  },
  'sends no line of changes': { text: (key) => post('/bulk', key, LINES), reads: 'when busy' },
};

test('no client keeps a stopping process alive, and idle connections are closed first', async () => {
  await using place = await createTestDatabase('postgres');
  const database = await place.open();
  const keyRing = deriveKeyRing(Buffer.from(SECRET, 'base64'));
  const { key, watcherId } = await issueKey({ database, keyRing }, 'acme', new Date());
  await database.query(sql`
    insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome, response)
    select ${watcherId}::bigint, 1, now(), 5, 'success', repeat('x', 1000) from generate_series(1, ${RECORDS}::int)`);
  await database.query(sql`
    insert into watched_address (shard_id, id, watcher_id, lane_id, address, watch_coin, watch_token, webhook_url,
      created_at, updated_at)
    select ${watcherId}::bigint, gen_random_uuid(), ${watcherId}::bigint, 1, decode(repeat('a1', 20), 'hex'), true, true,
      'https://hooks.example', now(), now() from generate_series(1, ${RECORDS}::int)`);
  const options = {
    rpc: ['http://127.0.0.1:1'],
    startBlock: 1,
    receiver: { port: 1 },
    roles: ['api'] as const,
  };
  const program = startProgram({ ...options, database: place });
  await waitUntil(() => program.log.includes('service.started'));
  const started = program.log.split('\n').find((line) => line.includes('service.started')) ?? '';
  const { port, origin } = new URL(JSON.parse(started).api);

  const ended: string[] = [];
  using sockets = new DisposableStack();
  for (const [name, { text, reads }] of Object.entries(clients)) {
    const socket = connect({ port: Number(port), host: '127.0.0.1', allowHalfOpen: true });
    sockets.defer(() => socket.destroy());
    socket.on('error', () => {});
    let received = '';
    const note = () => {
      if (!ended.includes(name)) ended.push(name);
    };
    if (reads !== 'nothing')
      socket
        .setEncoding('utf8')
        .on('data', (piece: string) => {
          received += piece;
        })
        .once('end', note)
        .once('close', note);
    socket.write(text(key));
    if (reads === 'when idle' && text(key) !== '') await waitUntil(() => received.includes('200 OK'));
  }
  // The server answers in order, so after this answer the earlier requests have reached the program.
  assert.equal((await fetch(`${origin}/livez`)).status, 200);
  let isOver = false;
  void program.ended.then(() => {
    isOver = true;
  });
  program.child.kill('SIGTERM');
  // An idle connection would be kept for 65 s; a silent stream of changes, or an unread list, even longer.
  await waitUntil(() => isOver);
  assert.equal(program.child.exitCode, 0, program.log);
  await waitUntil(
    () => ended.length === Object.values(clients).filter(({ reads }) => reads !== 'nothing').length,
  );
  const busy = Object.keys(clients).filter((name) => clients[name]?.reads === 'when busy');
  assert.deepEqual(ended.slice(-busy.length).sort(), busy.sort());
});
