/**
 * Decides which delivery attempt starts next: fair among watchers, then among the receivers of one watcher. It uses start-time
 * fair queueing on the time that attempts hold their slots (Goyal, Vin and Cheng 1996). A slot can't be taken back from an attempt
 * that hangs, so an attempt that outlives its hand-over time moves to another budget and frees the slot.
 */
import { never } from '../core/abort.ts';
import type { Clock } from '../core/clock.ts';
import {
  type Account,
  type Attempt,
  type Begin,
  COST_MS_MIN,
  chargeGuess,
  comesBefore,
  createAccount,
  createMember,
  hasTurned,
  isReady,
  type Kind,
  kindOf,
  type LaneInLine,
  type Member,
  mayRetry,
  openOf,
  type Receiver,
  receiverOf,
  type Ticket,
  takeRefused,
} from './account.ts';
import { createOriginShares } from './origin-shares.ts';
import { createReceiverMemory, handOverMsOf, noteResponse, type ReceiverPace, slowDown } from './receiver.ts';
import { createPace, createStartWindow } from './start-limit.ts';

/** Limits of attempts under way in this process: of each kind, handed over (`hung`), all together, and to one origin. */
export type FairLimits = Record<Kind | 'hung' | 'open' | 'perOrigin', number>;

export type FairSlots = {
  /**
   * Adds a leased lane. `take` returns the lane's next attempt, or undefined until the lane calls `want` again. While the lane reads
   * its next rows, it keeps a slot.
   */
  join(lane: LaneInLine, take: () => Begin | Promise<void> | undefined): Seat;
  /** Watchers that could not start an attempt in a further lane. `onCredit` is called when one of them can again. */
  full(): number[];
  /** Waiting lanes beyond the attempts that their watchers can start now. */
  surplus(): number[];
  /** Undefined if no lane of the receiver is in line. */
  receiver(watcherId: number, origin: string): Readonly<Receiver> | undefined;
};

type Seat = {
  /** The lane may have an attempt to make. */
  want(): void;
  /** Whether a retry may start at the receiver. If not, the lane is asked again after one of another lane has ended. */
  mayRetry(): boolean;
  /** Counts a retry that starts (1) or ends (-1). */
  countRetry(by: 1 | -1): void;
  /** Of the lane's receiver. */
  pace: ReceiverPace;
  leave(): void;
};

type FairOptions = { clock: Clock; limits?: FairLimits; onCredit(): void };

/**
 * A hung attempt holds a socket for 10 s, about 21 KiB without TLS. A single watcher gets at most half of the proven slots, which
 * is more than one process can keep busy.
 */
const LIMITS: FairLimits = { unproven: 256, proven: 512, hung: 512, open: 1_536, perOrigin: 128 };
/** Added to the virtual time of a watcher whose next receiver is unproven, because a hundred new receivers may come at once. */
const UNPROVEN_BEHIND_MS = 4 * COST_MS_MIN;
/** How often to look for attempts to hand over. */
const LOOK_MS = 50;
/** While this many attempts of all watchers hang in this process, further ones that may hang start slowly. */
const CROWDED_MIN = 32;
/** Receivers of a watcher that may wait beside those with attempts under way. */
const WAITING_MAX = 8;
/** Starting an attempt takes 0.1 ms of the thread. Between groups the thread does its other work. */
const STARTS_PER_TURN_MAX = 8;

// oxlint-disable-next-line max-lines-per-function -- One scheduler on shared counters; a split would pass all of them to each part, on the path of every attempt.
export function createFairSlots({ clock, onCredit, limits = LIMITS }: FairOptions): FairSlots {
  const accounts = new Map<number, Account>();
  const ready = new Set<Account>();
  const origins = createOriginShares<Account>(limits.perOrigin);
  const memory = createReceiverMemory();
  const open: Record<Kind | 'hung', number> = { unproven: 0, proven: 0, hung: 0 };
  const undecided = new Set<Attempt>();
  const window = createStartWindow(limits.proven);
  const pace = createPace(clock, pumpSoon);
  /** The highest start tag served so far, without what may be refunded: a watcher that had nothing to do starts there. */
  let servedMs = 0;
  let passedOver = new Set<Account>();
  let isLooking = false;
  let startsLeft = STARTS_PER_TURN_MAX;
  let turn = 0;
  let isPumpDue = false;

  /** A watcher may have no more slots than remain free, so it never takes the last ones. */
  function mayStart(account: Account, kind: Kind): boolean {
    const own = account.open;
    if (openOf(open) >= limits.open && openOf(own) > 0) return false;
    // An unproven attempt may hang too. Without room for that in the hung budget, the watcher tries one at a time.
    const [mayHang, free] = [own.hung + own.unproven, limits.hung - open.hung];
    if (own.hung > 0 && mayHang >= free) return false;
    if (kind === 'unproven' && own.unproven > 0 && mayHang >= free - open.unproven) return false;
    return own[kind] < (kind === 'proven' ? window.size() : limits.unproven) - open[kind];
  }

  function isFull(account: Account): boolean {
    const { unproven, proven, hung } = account.open;
    if (account.receivers.size >= 2 * (unproven + proven) + hung + WAITING_MAX) return true;
    return !mayStart(account, 'unproven') && !mayStart(account, 'proven');
  }

  /** The watcher's receiver with the smallest virtual time among those that may start an attempt. */
  function nextOf(account: Account): Member | undefined {
    const isTurned = hasTurned(account);
    const isBusy = openOf(account.open) > 0;
    const isCrowded = isTurned || (account.hasHung && open.hung >= CROWDED_MIN);
    const mayUnproven = !(isBusy && pace.isFull('usual')) && mayStart(account, 'unproven');
    const mayAnswered = isTurned ? mayUnproven : mayStart(account, 'proven');
    const mayHang = mayUnproven && !(isBusy && isCrowded && pace.isFull('crowded'));
    const { answered, others } = account.ready;
    const next = mayAnswered ? firstOf(answered, undefined) : undefined;
    return mayHang ? firstOf(others, next) : next;
  }

  /** The one with the least served receiver among these and `next`. */
  function firstOf(members: ReadonlySet<Member>, next: Member | undefined): Member | undefined {
    let first = next;
    for (const member of members) {
      if (first !== undefined && !comesBefore(member, first)) continue;
      if (!member.isReading && origins.hasRoom(member.lane.origin, member.account)) first = member;
    }
    return first;
  }

  function pick(): Member | undefined {
    let next: Member | undefined;
    let nextMs = Number.POSITIVE_INFINITY;
    for (const account of ready) {
      if (account.virtualMs >= nextMs) continue;
      const member = nextOf(account);
      if (member === undefined) continue;
      const placeMs = account.virtualMs + (member.receiver.pace.isProven ? 0 : UNPROVEN_BEHIND_MS);
      if (placeMs >= nextMs) continue;
      next = member;
      nextMs = placeMs;
    }
    return next;
  }

  /** Pumps once for all calls within one turn of the event loop. */
  function pumpSoon(): void {
    if (isPumpDue) return;
    isPumpDue = true;
    queueMicrotask(() => {
      isPumpDue = false;
      pump();
    });
  }

  /** Starts the attempts that may start, a few in each turn of the event loop. */
  function pump(): void {
    while (ready.size > 0 && startsLeft > 0) {
      const member = pick();
      if (member === undefined) return;
      const begin = member.take();
      if (begin === undefined) {
        member.wants = false;
        line(member);
        continue;
      }
      turn += 1;
      member.turn = turn;
      if (typeof begin !== 'function') {
        keepSlot(member, begin);
        continue;
      }
      if (startsLeft === STARTS_PER_TURN_MAX) setImmediate(nextTurn);
      startsLeft -= 1;
      begin(start(member));
    }
  }

  /** Counts an attempt that may hang in its span. Call the returned function once the attempt is decided or over. */
  const enter = (kind: Kind) => (kind === 'unproven' ? pace.begin() : undefined);

  /** Keeps the slot while the lane reads. Otherwise every waiting lane would read for the one free slot. */
  function keepSlot(member: Member, reading: Promise<void>): void {
    const { account } = member;
    const kind = kindOf(member);
    open[kind] += 1;
    account.open[kind] += 1;
    const makeRoom = enter(kind);
    // Without this charge, all lanes of the watcher would read for the same slot.
    const settle = chargeGuess(member, kind);
    member.isReading = true;
    const giveUp = () => {
      member.isReading = false;
      open[kind] -= 1;
      account.open[kind] -= 1;
      settle(0);
      makeRoom?.();
      offer(account);
    };
    reading.then(giveUp, giveUp);
  }

  /** Allows further starts in the next turn of the event loop. */
  function nextTurn(): void {
    startsLeft = STARTS_PER_TURN_MAX;
    window.measure();
    pump();
  }

  /** For a receiver whose state has changed. */
  const lineAll = ({ members }: Receiver) => members.forEach(line);

  /** Adds the member to the ready ones, or removes it. */
  function line(member: Member): void {
    const { account, receiver } = member;
    const { answered, others } = account.ready;
    const [own, other] = receiver.pace.isProven ? [answered, others] : [others, answered];
    other.delete(member);
    if (!member.wants || receiver.open >= receiver.pace.limit) {
      own.delete(member);
      if (own.size === 0 && other.size === 0) ready.delete(account);
      return;
    }
    if (own.has(member)) return;
    // An unused share can't be saved up.
    if (receiver.open === 0 && !isReady(receiver))
      receiver.virtualMs = Math.max(receiver.virtualMs, account.servedMs);
    own.add(member);
    if (ready.has(account)) return;
    if (openOf(account.open) === 0) account.virtualMs = Math.max(account.virtualMs, servedMs);
    ready.add(account);
  }

  function want(member: Member): void {
    member.wants = true;
    line(member);
    pumpSoon();
  }

  function start(member: Member): Ticket {
    const { account, receiver } = member;
    const kind = kindOf(member);
    servedMs = Math.max(servedMs, account.virtualMs - account.refundMs);
    account.servedMs = receiver.virtualMs;
    const settle = chargeGuess(member, kind);
    const handOverAtMs = clock.steadyMs() + handOverMsOf(receiver.pace);
    const makeRoom = enter(kind);
    const attempt: Attempt = { member, kind, handOverAtMs, makeRoom };
    count(attempt, 1);
    undecided.add(attempt);
    lineAll(receiver);
    if (!isLooking) void look();
    let isOver = false;
    return {
      decided({ isAnswered, isOverloaded, durationMs }) {
        undecided.delete(attempt);
        makeRoom?.();
        settle(Math.max(durationMs, COST_MS_MIN));
        if (isAnswered)
          noteResponse(receiver.pace, { open: receiver.open, isInTime: attempt.kind !== 'hung', durationMs });
        else receiver.pace.isProven = false;
        if (isOverloaded) slowDown(receiver.pace);
        lineAll(receiver);
        pump();
      },
      end() {
        if (isOver) return;
        isOver = true;
        // Without an outcome, such as while its credentials can't be read, the attempt costs its watcher nothing.
        if (undecided.delete(attempt)) settle(0);
        makeRoom?.();
        count(attempt, -1);
        lineAll(receiver);
        offer(account);
      },
    };
  }

  function count({ member, kind }: Attempt, by: 1 | -1): void {
    const { account, lane, receiver } = member;
    open[kind] += by;
    account.open[kind] += by;
    member.open += by;
    receiver.open += by;
    if (kind === 'hung') {
      const before = receiver.hung;
      receiver.hung += by;
      account.hanging += Number(receiver.hung > 0) - Number(before > 0);
      account.hasHung = true;
    }
    origins.count(lane.origin, account, by);
  }

  /** Hands over attempts that take too long, for as long as any attempt is undecided. */
  async function look(): Promise<void> {
    isLooking = true;
    while (undecided.size > 0) {
      await clock.wait(LOOK_MS, never);
      const nowMs = clock.steadyMs();
      for (const attempt of undecided) {
        if (attempt.kind === 'hung' || attempt.handOverAtMs > nowMs) continue;
        count(attempt, -1);
        attempt.kind = 'hung';
        count(attempt, 1);
        attempt.member.receiver.pace.isProven = false;
        lineAll(attempt.member.receiver);
        offer(attempt.member.account);
      }
    }
    isLooking = false;
  }

  /** Offers a freed slot to lanes that wait here, and to lanes that this process hasn't leased yet. */
  function offer(account: Account): void {
    pumpSoon();
    if (!passedOver.has(account) || isFull(account)) return;
    passedOver.delete(account);
    onCredit();
  }

  /** A watcher that has used more than its share is kept until the others have caught up. */
  const isForgettable = ({ line: own, virtualMs }: Account) => own.size === 0 && virtualMs <= servedMs;

  function accountOf(watcherId: number): Account {
    const known = accounts.get(watcherId);
    if (known !== undefined) return known;
    const account = createAccount(watcherId, servedMs);
    accounts.set(watcherId, account);
    return account;
  }

  return {
    join(lane, take) {
      const account = accountOf(lane.watcherId);
      const receiver = receiverOf(account, lane, memory);
      const member = createMember({ lane, account, receiver, take });
      account.line.add(member);
      receiver.members.add(member);
      return {
        want: () => want(member),
        mayRetry: () => mayRetry(member),
        countRetry(by) {
          receiver.retries += by;
          takeRefused(receiver).forEach(want);
        },
        pace: receiver.pace,
        leave() {
          member.wants = false;
          line(member);
          account.line.delete(member);
          receiver.members.delete(member);
          receiver.refused.delete(member);
          if (receiver.members.size === 0) {
            account.receivers.delete(lane.origin);
            memory.keep(lane, receiver.pace);
          }
          offer(account);
        },
      };
    },
    full() {
      for (const [id, account] of accounts) if (isForgettable(account)) accounts.delete(id);
      passedOver = new Set([...accounts.values()].filter(isFull));
      return [...passedOver].map(({ watcherId }) => watcherId);
    },
    receiver: (watcherId, origin) => accounts.get(watcherId)?.receivers.get(origin),
    surplus() {
      return [...accounts.values()].flatMap((account) => {
        // Twice the limit for leasing, because giving lanes back and leasing them again is work too.
        const count = account.receivers.size - 2 * openOf(account.open) - WAITING_MAX;
        if (count <= 0) return [];
        const { answered, others } = account.ready;
        const waiting = [...answered, ...others].filter((member) => member.open === 0);
        return waiting.slice(-count).map(({ lane }) => lane.id);
      });
    },
  };
}
