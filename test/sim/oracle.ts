/**
 * What must be: told of everything that happens around Chainbell (blocks, records, webhooks and their answers), it keeps
 * what the database should hold, by the specification and by DESIGN §4 to §6, and compares after every turn that wrote.
 */
import { isRecord } from '../../src/chain/rpc.ts';
import { sidesOf, type Transfer } from '../../src/core/block.ts';
import type { Clock } from '../../src/core/clock.ts';
import type { Address, Hash } from '../../src/core/hex.ts';
import { parseExact } from '../../src/core/json.ts';
import { webhookOrigin } from '../../src/core/webhook-url.ts';
import type { Message } from '../../src/delivery/payload.ts';
import type { SendResult } from '../../src/delivery/send.ts';
import type { SimChain } from './chain.ts';
import type { Actor } from './scheduler.ts';
import type { Sessions } from './seat.ts';
import type { StoredLane, StoredNotification, StoredState } from './state.ts';

/** A watched address, with what became of it. */
export type SimRecord = {
  readonly id: string;
  readonly watcherId: number;
  address: Address;
  watchCoin: boolean;
  watchToken: boolean;
  webhookUrl: string;
  isGone: boolean;
  /** It was patched at some time. */
  hasChanged: boolean;
};

type State = 'held' | 'waiting' | 'processed' | 'withdrawn' | 'cancelled';
type Notification = {
  record: SimRecord;
  transfer: Transfer;
  block: number;
  state: State;
  retryCount: number;
  nextRetryMs: number | undefined;
  isAccepted: boolean;
};

/** One attempt, from the request to its record in the log. */
export type Sending = {
  actor: Actor;
  lane: number;
  notification: Notification;
  /** The schedule that the body told: it names the attempt. */
  nextRetryMs: number | undefined;
  answer: { atMs: number; outcome: SendResult['outcome'] } | undefined;
  isSettled: boolean;
};

export type OracleOptions = {
  chain: SimChain;
  clock: Clock;
  sessions: Sessions;
  confirmations: number;
  retryMinutes: readonly number[];
  /** Told of each promise that is broken. */
  fail(problem: string): void;
};

export type Oracle = ReturnType<typeof createOracle>;

export function createOracle({ chain, clock, sessions, confirmations, retryMinutes, fail }: OracleOptions) {
  const records = new Map<string, SimRecord>();
  const notifications = new Map<string, Notification>();
  const byId = new Map<number, Notification>();
  const sendings = new Map<string, Sending>();
  const blocks = new Map<number, Hash>();
  /** Who had which lane, in their order. */
  const leases: { lane: number; actor: Actor | undefined }[] = [];
  let lanes = new Map<number, StoredLane>();
  const nowMs = () => clock.now().getTime();

  /** Compares the database with what must be, after a turn of this actor. */
  function observe(state: StoredState, actor: Actor | undefined): void {
    followBlocks(state);
    followLanes(state.lanes, actor);
    // Of two outcomes of one notification that are settled together the 2xx counts.
    const isFailure = ({ outcome }: StoredState['attempts'][number]) => Number(outcome !== 'success');
    for (const attempt of state.attempts.sort((one, other) => isFailure(one) - isFailure(other)))
      settle(attempt);
    compare(state.notifications);
  }

  function followBlocks(state: StoredState): void {
    const stored = new Map(state.blocks.map(({ number, hash }) => [number, hash]));
    for (const [number, hash] of blocks) if (stored.get(number) !== hash) undo(number);
    for (const { number, hash, parent } of state.blocks) {
      if (blocks.has(number)) continue;
      if (blocks.size > 0 && blocks.get(number - 1) !== parent)
        fail(`block ${number} is stored on another than its parent`);
      add(number, hash);
    }
    const released = Math.max(...blocks.keys()) - confirmations;
    for (const one of notifications.values())
      if (one.state === 'held' && one.block <= released) one.state = 'waiting';
  }

  /** What was never attempted is withdrawn with its block. */
  function undo(number: number): void {
    blocks.delete(number);
    for (const one of notifications.values()) {
      const isOpen = one.state === 'held' || one.state === 'waiting';
      if (one.block === number && isOpen && one.retryCount === 0) one.state = 'withdrawn';
    }
  }

  /** One notification for each transfer and each record that watches one of its sides; one that was there stays. */
  function add(number: number, hash: Hash): void {
    blocks.set(number, hash);
    for (const { transfers } of chain.find(hash)?.transactions ?? []) {
      for (const transfer of transfers) {
        for (const record of records.values()) {
          if (!watches(record, transfer)) continue;
          const known = notifications.get(keyOf(record.id, transfer));
          if (known === undefined)
            notifications.set(keyOf(record.id, transfer), make(record, transfer, number));
          else if (known.state === 'withdrawn') Object.assign(known, { state: 'held', block: number });
        }
      }
    }
  }

  function followLanes(stored: readonly StoredLane[], actor: Actor | undefined): void {
    for (const lane of stored) {
      const before = lanes.get(lane.id);
      if (before === undefined) continue;
      if (lane.epoch > before.epoch) {
        if (before.owner !== null && (before.lease_ms ?? 0) > nowMs())
          fail(`lane ${lane.id} was taken before its lease was over`);
        leases.push({ lane: lane.id, actor: sessions.workerOf(lane.owner ?? 0) });
      } else if (before.owner !== null && lane.owner === null) {
        const isOwn = sessions.workerOf(before.owner) === actor;
        if (!isOwn && sessions.isWorkerAlive(before.owner))
          fail(`lane ${lane.id} was taken from a living worker`);
      }
    }
    lanes = new Map(stored.map((lane) => [lane.id, lane]));
  }

  const holderOf = (lane: number) => leases.findLast((lease) => lease.lane === lane)?.actor;

  /** Who has lost the lane, or had it twice, may not know what others did with it; so does who sends for a record that changed. */
  function isContested({ actor, lane, notification }: Sending): boolean {
    const count = leases.filter((lease) => lease.lane === lane && lease.actor === actor).length;
    return notification.record.hasChanged || holderOf(lane) !== actor || count !== 1;
  }

  /** A worker sends a webhook. */
  function send(actor: Actor, { headers, url, body }: Message): Sending | undefined {
    const id = Number(headers['webhook-id']);
    const notification = byId.get(id);
    const json = parseExact(body);
    if (notification === undefined || !isRecord(json)) {
      fail(`webhook ${id} is of no notification`);
      return undefined;
    }
    const { record } = notification;
    const lane = Array.from(lanes.values()).find(
      ({ shard, origin }) => shard === record.watcherId && origin === webhookOrigin(url),
    );
    const nextRetryMs = typeof json.next_retry_at === 'string' ? parseTime(json.next_retry_at) : undefined;
    const sending: Sending = {
      ...{ actor, lane: lane?.id ?? 0, notification, nextRetryMs },
      ...{ answer: undefined, isSettled: false },
    };
    if (JSON.stringify(toldBy(json)) !== JSON.stringify(wantedBody(notification)))
      fail(`webhook ${id} says ${JSON.stringify(toldBy(json))}`);
    if (!isContested(sending)) {
      if (notification.state === 'processed') fail(`webhook ${id} is sent after its 2xx`);
      if (notification.nextRetryMs !== nextRetryMs)
        fail(`webhook ${id} tells a schedule that is not its own`);
      if ((nextRetryMs ?? 0) > nowMs()) fail(`webhook ${id} is sent before its time`);
      for (const other of sendings.values()) {
        const isUnderWay = other.notification === notification && other.actor === actor && !other.isSettled;
        if (isUnderWay) fail(`webhook ${id} is sent twice at a time`);
      }
    }
    sendings.set(`${id} ${nowMs()}`, sending);
    return sending;
  }

  function answer(sending: Sending, outcome: SendResult['outcome']): void {
    sending.answer = { atMs: nowMs(), outcome };
    if (outcome === 'success') sending.notification.isAccepted = true;
  }

  /** An outcome is in the log: it counts, unless another attempt of the same number was first. */
  function settle({ notification: id, started_ms, outcome }: StoredState['attempts'][number]): void {
    const sending = sendings.get(`${id} ${started_ms}`);
    if (sending?.answer === undefined || sending.answer.outcome !== outcome) {
      fail(`the log has an attempt of ${id} that was not made: ${outcome}`);
      return;
    }
    const { notification, actor, lane, answer: given } = sending;
    if (holderOf(lane) !== actor) fail(`${actor.name} settled ${id} although it had lost lane ${lane}`);
    // A group whose commit came through unheard is settled again.
    const isRepeated = sending.isSettled;
    sending.isSettled = true;
    if (isRepeated || notification.state === 'processed') return;
    if (outcome === 'success') {
      Object.assign(notification, { state: 'processed', nextRetryMs: undefined });
    } else if (notification.nextRetryMs === sending.nextRetryMs) {
      const minutes = retryMinutes[notification.retryCount] ?? retryMinutes.at(-1) ?? 0;
      notification.retryCount += 1;
      notification.nextRetryMs = given.atMs + minutes * 60_000;
      if (notification.state === 'withdrawn') notification.state = 'waiting';
    }
  }

  function compare(stored: readonly StoredNotification[]): void {
    const missing = new Set(notifications.keys());
    for (const row of stored) {
      const key = `${row.record} ${row.hash} ${row.kind} ${row.ordinal}`;
      const wanted = notifications.get(key);
      if (wanted === undefined) {
        fail(`notification ${row.id} should not be`);
        return;
      }
      if (!missing.delete(key)) fail(`notification ${row.id} is there twice`);
      byId.set(row.id, wanted);
      // It became due after its record had gone: whoever reads it cancels it.
      if (row.state === 'cancelled' && wanted.state === 'waiting' && wanted.record.isGone)
        wanted.state = 'cancelled';
      const [is, should] = [JSON.stringify(storedRow(row)), JSON.stringify(wantedRow(wanted))];
      if (is !== should) fail(`notification ${row.id} is ${is}, should be ${should}`);
    }
    for (const key of missing) fail(`there is no notification ${key}`);
  }

  /** Why it is not over yet. What is held lacks confirmations: the chain has ended. */
  function findUnfinished(): string | undefined {
    const { number, hash } = chain.head().header;
    if (blocks.get(number) !== hash) return `block ${number} is not stored`;
    const open = Array.from(byId).find(([, { state }]) => state === 'waiting');
    return open && `notification ${open[0]} is still waiting`;
  }

  /** When nothing is open any more: what the chain says must have been heard, and nothing else. */
  function judge(): void {
    const canonical = new Set<Hash>();
    for (const [number, hash] of blocks) {
      const block = chain.at(chain.head(), number);
      if (block?.header.hash !== hash) fail(`block ${number} is not of the chain`);
      for (const transaction of block?.transactions ?? []) canonical.add(transaction.hash);
    }
    for (const [key, { state, isAccepted, transfer, record }] of notifications) {
      if (state === 'processed' && !isAccepted) fail(`nobody heard of ${key}`);
      const isWatched = !record.isGone && !record.hasChanged;
      if (state === 'withdrawn' && isWatched && canonical.has(transfer.txHash))
        fail(`${key} was withdrawn for ever`);
    }
    for (const [name, sending] of sendings) {
      const isHeard = sending.answer !== undefined && !sending.isSettled && !sending.actor.isDead;
      if (isHeard && !isContested(sending)) fail(`the answer to ${name} was lost`);
    }
  }

  return {
    records,
    observe,
    send,
    answer,
    findUnfinished,
    judge,
    /** What waits for a deleted record is cancelled. */
    remove(record: SimRecord): void {
      record.isGone = true;
      for (const one of notifications.values())
        if (one.record === record && (one.state === 'held' || one.state === 'waiting'))
          one.state = 'cancelled';
    },
    /** When the next retry is due. */
    nextRetryMs(): number | undefined {
      const times = Array.from(notifications.values(), ({ state, nextRetryMs }) =>
        state === 'waiting' && nextRetryMs !== undefined ? [nextRetryMs] : [],
      );
      return times.flat().sort((one, other) => one - other)[0];
    },
    /** Notifications by state, for the story's end. */
    counts(): Record<string, number> {
      const counts: Record<string, number> = { attempts: sendings.size };
      for (const { state } of notifications.values()) counts[state] = (counts[state] ?? 0) + 1;
      return counts;
    },
  };
}

const keyOf = (record: string, { txHash, kind, ordinal }: Transfer) =>
  `${record} ${txHash} ${kind} ${ordinal}`;

function watches(record: SimRecord, transfer: Transfer): boolean {
  const isWatched = transfer.kind === 'token' ? record.watchToken : record.watchCoin;
  return !record.isGone && isWatched && sidesOf(transfer).includes(record.address);
}

function make(record: SimRecord, transfer: Transfer, block: number): Notification {
  const attempts = { retryCount: 0, nextRetryMs: undefined, isAccepted: false };
  return { record, transfer, block, state: 'held', ...attempts };
}

const wantedRow = ({ state, block, retryCount, nextRetryMs, transfer }: Notification) => [
  state,
  block,
  retryCount,
  nextRetryMs ?? null,
  transfer.sender,
  transfer.receiver ?? null,
  String(transfer.amount),
  transfer.token ?? null,
];

const storedRow = (row: StoredNotification) => [
  row.state,
  row.block,
  row.retries,
  row.retry_ms,
  row.sender,
  row.receiver,
  row.amount,
  row.token,
];

/** Spec 2.7, but for the id, the times and the URL, which change. */
const wantedBody = ({ record, transfer }: Notification) => [
  record.id,
  record.watcherId,
  transfer.txHash,
  transfer.kind === 'token' ? 'TOKEN_TRANSFER' : 'COIN_TRANSFER',
  transfer.sender,
  transfer.receiver ?? '',
  String(transfer.amount),
  transfer.token ?? 'ETH',
];

const toldBy = (json: Record<string, unknown>) => [
  json.watched_addresses_id,
  json.watcher_id,
  json.hash,
  json.type,
  json.sender,
  json.receiver,
  String(json.amount),
  json.asset,
];

/** `YYYY-MM-DD HH:MM:SS.ffffff`, UTC. */
const parseTime = (text: string) => Date.parse(`${text.slice(0, 23).replace(' ', 'T')}Z`);
