/**
 * Measures how soon the service resumes after a standby takes over from a primary that was killed under load, and whether any
 * data is lost. Makes ten runs with both servers in database.url, and ten with an address that moves to the standby.
 */
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { type PostgresPair, startPostgresPair } from '../test/kit/postgres-pair.ts';
import { startTcpProxy } from '../test/kit/tcp-proxy.ts';
import { waitUntil } from '../test/kit/wait.ts';
import type { Figures } from './figures.ts';
import { spreadOf } from './spread.ts';
import { type Stage, setStage } from './stage.ts';

const RUNS = 10;
/** Time from the primary's death to the promotion. The longer one lets every back-off grow to its limit. */
const OUTAGES_MS = [2_000, 10_000];
const TRANSFER_EVERY_MS = 100;
const REQUEST_EVERY_MS = 50;
/** Webhooks and API responses to wait for before the primary dies. */
const WARM_UP = 20;
const RESUME_MS_MAX = 60_000;
const ADDRESSES_FROM = 2n ** 150n;

type Way = 'both hosts in the URL' | 'the address moves';
type Run = Record<'blockMs' | 'webhookMs' | 'apiMs', number> &
  Record<'transfers' | 'records' | 'lostTransfers' | 'lostRecords' | 'sentTwice', number>;

export async function failover(): Promise<Figures> {
  const rows: Figures['rows'] = [];
  for (const way of ['both hosts in the URL', 'the address moves'] as const)
    for (const outageMs of OUTAGES_MS) {
      const runs: Run[] = [];
      while (runs.length < RUNS / OUTAGES_MS.length) {
        runs.push(await once(way, outageMs));
        process.stderr.write(`  ${way}, ${outageMs} ms: ${JSON.stringify(runs.at(-1))}\n`);
      }
      const all = (name: keyof Run) => runs.map((run) => run[name]);
      const sum = (name: keyof Run) => all(name).reduce((total, value) => total + value, 0);
      rows.push({
        ...{ way, outageSeconds: outageMs / 1_000, runs: runs.length },
        blockMs: spreadOf(all('blockMs')),
        webhookMs: spreadOf(all('webhookMs')),
        apiMs: spreadOf(all('apiMs')),
        slowestMs: Math.max(...all('blockMs'), ...all('webhookMs'), ...all('apiMs')),
        ...{ transfers: sum('transfers'), lostTransfers: sum('lostTransfers'), sentTwice: sum('sentTwice') },
        ...{ acknowledgedRecords: sum('records'), lostRecords: sum('lostRecords') },
      });
    }
  return {
    conditions: {
      database: 'PostgreSQL primary with a synchronous streaming standby',
      killed: 'SIGKILL of all processes of the primary',
      transfersPerSecond: 1_000 / TRANSFER_EVERY_MS,
      requestsPerSecond: 1_000 / REQUEST_EVERY_MS,
    },
    rows,
  };
}

async function once(way: Way, outageMs: number): Promise<Run> {
  await using pair = await startPostgresPair();
  await using proxy = await startTcpProxy({ host: '127.0.0.1', port: pair.primary.port });
  const webhooks = new Map<string, number[]>();
  await using stage = await setStage({
    internalTransfers: 'off',
    databaseUrl: urlOf(pair, way === 'the address moves' ? [proxy.port] : undefined),
    answer({ json }) {
      const hash = typeof json === 'object' && json !== null && 'hash' in json ? String(json.hash) : '';
      webhooks.set(hash, [...(webhooks.get(hash) ?? []), Date.now()]);
      return { status: 200 };
    },
  });
  const [, receiver] = stage.chain.accounts;
  await stage.watch(receiver);
  const over = new AbortController();
  const transfers = sendTransfers(stage, over.signal);
  const records = createRecords(stage, over.signal);
  const loads = Promise.all([transfers.done, records.done]);
  await waitUntil(() => webhooks.size >= WARM_UP && records.acknowledged.length >= WARM_UP, {
    timeoutMs: RESUME_MS_MAX,
  });

  await pair.killPrimary();
  const killedAt = Date.now();
  proxy.target = { host: '127.0.0.1', port: pair.standby.port };
  await proxy.cut();
  await proxy.mend();
  await delay(outageMs);
  const tip = await ask(pair, 'select max(number)::int as value from block');
  await pair.promote();
  const promotedAt = Date.now();

  let blockAt: number | undefined;
  const webhookAt = () =>
    transfers.sent
      .filter(({ sentAt }) => sentAt > killedAt)
      .flatMap(({ hash }) => webhooks.get(hash) ?? [])
      .sort((one, other) => one - other)[0];
  const recordAt = () => records.acknowledged.find(({ answeredAt }) => answeredAt > promotedAt)?.answeredAt;
  await waitUntil(
    async () => {
      if (blockAt === undefined && (await ask(pair, 'select max(number)::int as value from block')) > tip)
        blockAt = Date.now();
      return blockAt !== undefined && webhookAt() !== undefined && recordAt() !== undefined;
    },
    { describe: 'the service to go on', timeoutMs: RESUME_MS_MAX, pollMs: 10 },
  );
  over.abort();
  await loads;
  const isTold = ({ hash }: { hash: string }) => webhooks.has(hash);
  await waitUntil(() => transfers.sent.every(isTold), { timeoutMs: RESUME_MS_MAX }).catch(() => {});
  if (!stage.isRunning()) throw new Error('the service has ended');
  const ids = records.acknowledged.map(({ id }) => `'${id}'`);
  const kept = await ask(
    pair,
    `select count(*)::int as value from watched_address where id in (${ids.join()})`,
  );
  const since = (at: number | undefined) => Math.max(0, (at ?? Number.NaN) - promotedAt);
  return {
    ...{ blockMs: since(blockAt), webhookMs: since(webhookAt()), apiMs: since(recordAt()) },
    ...{
      transfers: transfers.sent.length,
      lostTransfers: transfers.sent.filter((one) => !isTold(one)).length,
    },
    ...{ records: ids.length, lostRecords: ids.length - kept },
    sentTwice: Array.from(webhooks.values()).filter(({ length }) => length > 1).length,
  };
}

/** A URL with both servers, or with these ports instead. The future standby comes last. */
function urlOf(pair: PostgresPair, ports = [pair.primary.port, pair.standby.port]): string {
  const { username, password, pathname } = new URL(pair.primary.url);
  const hosts = ports.map((port) => `127.0.0.1:${port}`).join();
  const parameters = ports.length > 1 ? '?target_session_attrs=read-write' : '';
  return `postgres://${username}:${password}@${hosts}${pathname}${parameters}`;
}

/** Sends one transfer after the other, each in a separate block. */
function sendTransfers({ chain }: Stage, over: AbortSignal) {
  const [from, to] = chain.accounts;
  const sent: { hash: string; sentAt: number }[] = [];
  const send = async () => {
    while (!over.aborted) {
      const sentAt = Date.now();
      sent.push({ sentAt, hash: await chain.send({ from, to, valueWei: 1n }) });
      await delay(TRANSFER_EVERY_MS);
    }
  };
  return { sent, done: send() };
}

/** Creates watched addresses. A record that the API has confirmed must not be lost. */
function createRecords({ apiUrl, key, receiver }: Stage, over: AbortSignal) {
  const acknowledged: { id: string; answeredAt: number }[] = [];
  const create = async (address: string) => {
    const answer = await fetch(`${apiUrl}/api/notifications/watched-addresses`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ address, webhook_url: receiver.url }),
    }).catch(() => undefined);
    if (answer?.ok !== true) return;
    const { data }: { data: { id: string } } = JSON.parse(await answer.text());
    acknowledged.push({ id: data.id, answeredAt: Date.now() });
  };
  const work = async () => {
    const open: Promise<void>[] = [];
    for (let index = ADDRESSES_FROM; !over.aborted; index += 1n) {
      open.push(create(`0x${index.toString(16).padStart(40, '0')}`));
      await delay(REQUEST_EVERY_MS);
    }
    await Promise.all(open);
  };
  return { acknowledged, done: work() };
}

/** Reads a number from the server that is, or will become, the primary. */
async function ask(pair: PostgresPair, text: string): Promise<number> {
  const client = new pg.Client({ connectionString: pair.standby.url });
  await client.connect();
  try {
    return Number((await client.query(text)).rows[0]?.value);
  } finally {
    await client.end();
  }
}
