/**
 * Watches which lanes the workers lease, and which webhooks they send and settle. A worker must not take another worker's
 * lane, send early or twice at a time, or settle an outcome that it did not receive.
 */
import type { Clock } from '../../src/core/clock.ts';
import { isRecord, parseExact } from '../../src/core/json.ts';
import type { Message, SendResult } from '../../src/delivery/send.ts';
import { shardOfRecord } from '../../src/domain/shard.ts';
import { webhookOrigin } from '../../src/domain/webhook-url.ts';
import type { Oracle } from './oracle.ts';
import { type Notification, settle as settleOne, type Version } from './rules.ts';
import type { Actor } from './scheduler.ts';
import type { Sessions } from './seat.ts';
import type { StoredLane, StoredState } from './state.ts';

/** One attempt, from the request to its record in the log. */
export type Sending = Version & {
  actor: Actor;
  lane: number;
  notification: Notification;
  answer: { atMs: number; outcome: SendResult['outcome'] } | undefined;
  isSettled: boolean;
};

/** A due notification as a worker read it from the database. */
type Read = Version & { retryText: unknown };

type WitnessOptions = {
  oracle: Oracle;
  clock: Clock;
  sessions: Sessions;
  retryMinutes: readonly number[];
  /** Called with each broken promise. */
  fail(problem: string): void;
};

export type Witness = ReturnType<typeof createWitness>;

export function createWitness({ oracle, clock, sessions, retryMinutes, fail }: WitnessOptions) {
  const sendings = new Map<string, Sending>();
  const reads = new Map<string, Read>();
  /** When each attempt of the log began. */
  const logged = new Map<number, number>();
  /** The holders of all lanes, in order. */
  const leases: { lane: number; actor: Actor | undefined }[] = [];
  let lanes = new Map<number, StoredLane>();
  let lastProcessed: Notification[] = [];
  const nowMs = () => clock.now().getTime();

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
        const isOver = (before.lease_ms ?? 0) <= nowMs();
        if (!isOwn && !isOver && sessions.isWorkerAlive(before.owner))
          fail(`lane ${lane.id} was taken from a living worker`);
      }
    }
    lanes = new Map(stored.map((lane) => [lane.id, lane]));
  }

  const holderOf = (lane: number) => leases.findLast((lease) => lease.lane === lane)?.actor;

  /** An actor that lost the lane, or had it twice, may have missed changes by others. So may one whose watched address moved. */
  function isContested({ actor, lane, notification }: Sending): boolean {
    const count = leases.filter((lease) => lease.lane === lane && lease.actor === actor).length;
    return notification.record.hasMoved || holderOf(lane) !== actor || count !== 1;
  }

  /** A worker reads the due rows of its lane. */
  function read(actor: Actor, rows: readonly unknown[]): void {
    for (const row of rows) {
      if (!isRecord(row) || row.id === null) continue;
      const numberOf = (column: string) => Number(row[column]);
      const key = `${actor.name} ${numberOf('record_lane_id')} ${numberOf('id')}`;
      reads.set(key, {
        revision: numberOf('revision'),
        redelivery: numberOf('redelivery_count'),
        retries: numberOf('retry_count'),
        retryText: row.next_retry_text,
      });
    }
  }

  /** A worker sends a webhook. `startedMs` is by the worker's clock. */
  function send(actor: Actor, { headers, url, body }: Message, startedMs: number): Sending | undefined {
    const [id = 0, revision = 0] = (headers['webhook-id'] ?? '').split('-').map(Number);
    const notification = oracle.byId.get(id);
    const json = parseExact(body);
    const lane = Array.from(lanes.values()).find(
      ({ shard, origin }) =>
        notification !== undefined &&
        shard === shardOfRecord(notification.record.watcherId, notification.record.id) &&
        origin === webhookOrigin(url),
    );
    const known = reads.get(`${actor.name} ${lane?.id} ${id}`);
    if (notification === undefined || known === undefined || !isRecord(json)) {
      fail(`webhook ${id} is of no notification that was due`);
      return undefined;
    }
    const { retryText, ...version } = known;
    const sending: Sending = {
      ...{ ...version, actor, lane: lane?.id ?? 0, notification },
      ...{ answer: undefined, isSettled: false },
    };
    const isRemoval = headers['chainbell-removed'] === 'true';
    if (revision !== version.revision || isRemoval !== (revision % 2 === 1))
      fail(`webhook ${id} is of another revision than it says`);
    if (json.next_retry_at !== retryText) fail(`webhook ${id} tells a schedule that is not its own`);
    if (JSON.stringify(toldBy(json)) !== JSON.stringify(wantedBody(notification)))
      fail(`webhook ${id} says ${JSON.stringify(toldBy(json))}`);
    if (notification.isDeleted) fail(`webhook ${id} is sent although its notification is deleted`);
    const isLate = notification.revision !== revision || notification.redelivery !== version.redelivery;
    if (!isContested(sending) && !isLate) {
      if (notification.state === 'processed') fail(`webhook ${id} is sent after its 2xx`);
      if (notification.retries !== version.retries) fail(`webhook ${id} is not the attempt that is due`);
      if ((notification.retryMs ?? 0) > nowMs()) fail(`webhook ${id} is sent before its time`);
      for (const other of sendings.values()) {
        const isUnderWay = other.notification === notification && other.actor === actor && !other.isSettled;
        if (isUnderWay) fail(`webhook ${id} is sent twice at a time`);
      }
    }
    notification.requests += 1;
    sendings.set(`${id} ${startedMs}`, sending);
    return sending;
  }

  function answer(sending: Sending, outcome: SendResult['outcome']): void {
    sending.answer = { atMs: nowMs(), outcome };
    if (outcome === 'connect') sending.notification.requests -= 1;
    if (outcome === 'success') sending.notification.received.add(sending.revision);
  }

  /** Applies logged outcomes. Each counts, unless another attempt of the same number came first. */
  function settle(attempts: StoredState['attempts']): void {
    if (attempts.length > 0) lastProcessed = [];
    // Of two outcomes of one notification that are settled together, the 2xx counts.
    const isFailure = ({ outcome }: (typeof attempts)[number]) => Number(outcome !== 'success');
    for (const { notification: id, started_ms, outcome } of attempts.sort(
      (one, other) => isFailure(one) - isFailure(other),
    )) {
      const sending = sendings.get(`${id} ${started_ms}`);
      if (sending?.answer === undefined || sending.answer.outcome !== outcome) {
        fail(`the log has an attempt of ${id} that was not made: ${outcome}`);
        continue;
      }
      const { notification, actor, lane, retries } = sending;
      if (holderOf(lane) !== actor) fail(`${actor.name} settled ${id} although it had lost lane ${lane}`);
      // A worker that missed the answer to its commit settles the group again.
      if (sending.isSettled) continue;
      sending.isSettled = true;
      const minutes = retryMinutes[retries] ?? retryMinutes.at(-1) ?? 0;
      const retryMs = outcome === 'success' ? undefined : sending.answer.atMs + minutes * 60_000;
      settleOne(notification, sending, { retryMs, hasArrived: outcome !== 'connect' });
      if (notification.state === 'processed') lastProcessed.push(notification);
    }
  }

  /** Follows which attempts the log has. Retention may have deleted those that began before `keptFromMs`. */
  function followLog({ attempts, attemptIds }: StoredState, keptFromMs: number): void {
    for (const { id, started_ms } of attempts) logged.set(id, started_ms);
    if (logged.size === attemptIds.length) return;
    const left = new Set(attemptIds);
    for (const [id, startedMs] of logged) {
      if (left.has(id)) continue;
      if (startedMs >= keptFromMs) fail(`attempt ${id} is deleted too early`);
      logged.delete(id);
    }
  }

  return {
    ...{ followLanes, read, send, answer, settle, followLog },
    /** The attempt that began before `keptFromMs` and is still in the log. */
    findKept(keptFromMs: number): string | undefined {
      const kept = Array.from(logged).find(([, startedMs]) => startedMs < keptFromMs);
      return kept && `attempt ${kept[0]}`;
    },
    attemptCount: () => sendings.size,
    /** The notifications that the last settlement marked as processed. */
    lastProcessed: () => lastProcessed,
    /** When nothing is open any more. */
    judge(): void {
      for (const [name, sending] of sendings) {
        const isHeard = sending.answer !== undefined && !sending.isSettled && !sending.actor.isDead;
        if (isHeard && !isContested(sending)) fail(`the answer to ${name} was lost`);
      }
    },
  };
}

/** The fields of spec 2.7 without the id, the times and the URL, which change. */
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
