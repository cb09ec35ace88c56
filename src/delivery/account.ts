/**
 * The fair queue's state of each watcher and of its leased lanes.
 */
import type { ReceiverMemory, ReceiverPace } from './receiver.ts';

/** proven: its last attempt got an answer within the hand-over time. */
export type Kind = 'unproven' | 'proven';

export type LaneInLine = { id: number; watcherId: number; origin: string };

/** Starts the attempt that holds this ticket. */
export type Begin = (ticket: Ticket) => void;

export type Ticket = {
  /** The receiver has responded with a status, or the attempt has failed. */
  decided(answer: { isAnswered: boolean; isOverloaded: boolean; durationMs: number }): void;
  /** Frees the attempt's slot. A second call does nothing. */
  end(): void;
};

export type Account = {
  readonly watcherId: number;
  virtualMs: number;
  /** How much of it may be refunded: attempts that may hang are charged as if they did. */
  refundMs: number;
  /** The virtual time that its receivers have reached. */
  servedMs: number;
  readonly line: Set<Member>;
  /** The receivers of those lanes, by origin. */
  readonly receivers: Map<string, Receiver>;
  /** `answered`: the receiver answered its last attempt. `others`: it may hang. */
  readonly ready: Record<'answered' | 'others', Set<Member>>;
  readonly open: Record<Kind | 'hung', number>;
  /** How many of its receivers here have an attempt that was handed over. */
  hanging: number;
  /** Whether an attempt was handed over since this account began. */
  hasHung: boolean;
};

/**
 * A receiver of a watcher. A watcher with several slices has several lanes for it, which share its limit and its place in the
 * order, so that it gets no more because of them.
 */
export type Receiver = {
  readonly pace: ReceiverPace;
  /** Its lanes here. */
  readonly members: Set<Member>;
  /** Those of them that wait for the end of a retry, the one that waits longest first. */
  readonly refused: Set<Member>;
  virtualMs: number;
  /** Attempts under way, those of them that were handed over, and those that are retries. */
  open: number;
  hung: number;
  retries: number;
};

export type Member = {
  readonly lane: LaneInLine;
  readonly account: Account;
  readonly receiver: Receiver;
  /** The next attempt; or the end of reading, if rows have to be read first. */
  readonly take: () => Begin | Promise<void> | undefined;
  /** When it last started an attempt or a read: the lanes of a receiver take turns. */
  turn: number;
  open: number;
  wants: boolean;
  /** While it reads, it keeps its place, because another lane of the same watcher would have to read too. */
  isReading: boolean;
};

export type Attempt = {
  readonly member: Member;
  kind: Kind | 'hung';
  readonly handOverAtMs: number;
  /** Lets another attempt that may hang start, if this one is decided within its span. */
  readonly makeRoom: (() => void) | undefined;
};

/** When this many receivers of a watcher hang at once, and this share of those here, none of them counts as proven. */
const TURNED_MIN = 4;
const TURNED_SHARE = 0.1;

export const createAccount = (watcherId: number, virtualMs: number): Account => ({
  watcherId,
  virtualMs,
  refundMs: 0,
  servedMs: 0,
  line: new Set(),
  receivers: new Map(),
  ready: { answered: new Set(), others: new Set() },
  open: { unproven: 0, proven: 0, hung: 0 },
  hanging: 0,
  hasHung: false,
});

/** The account's receiver of this origin, with what the memory knows of it. */
export function receiverOf(account: Account, lane: LaneInLine, memory: ReceiverMemory): Receiver {
  const known = account.receivers.get(lane.origin);
  if (known !== undefined) return known;
  const receiver: Receiver = {
    ...{ pace: memory.take(lane), members: new Set(), refused: new Set() },
    ...{ virtualMs: account.servedMs, open: 0, hung: 0, retries: 0 },
  };
  account.receivers.set(lane.origin, receiver);
  return receiver;
}

export const createMember = (fields: Pick<Member, 'lane' | 'account' | 'receiver' | 'take'>): Member => ({
  ...fields,
  turn: 0,
  open: 0,
  wants: false,
  isReading: false,
});

/** Attempts under way. */
export const openOf = ({ unproven, proven, hung }: Account['open']): number => unproven + proven + hung;

/** Whether so many formerly answering receivers hang that it may be an attack, so that the others may follow. */
export const hasTurned = ({ receivers, hanging }: Account): boolean =>
  hanging >= Math.max(TURNED_MIN, TURNED_SHARE * receivers.size);

export const kindOf = ({ receiver, account }: Member): Kind =>
  receiver.pace.isProven && !hasTurned(account) ? 'proven' : 'unproven';

/** Which of two ready lanes starts first: that of the receiver with less time. The lanes of one receiver take turns. */
export const comesBefore = (one: Member, other: Member): boolean =>
  one.receiver === other.receiver ? one.turn < other.turn : one.receiver.virtualMs < other.receiver.virtualMs;

/** How many more retries may start. One place always remains for first attempts. */
const retryRoomOf = ({ pace, retries }: Receiver): number => Math.max(pace.limit - 1 - retries, 0);

/** Whether a retry may start. If not, the lane waits until `takeRefused` returns it. */
export function mayRetry(member: Member): boolean {
  const { refused } = member.receiver;
  const may = retryRoomOf(member.receiver) > 0;
  if (may) refused.delete(member);
  else refused.add(member);
  return may;
}

/** As many refused lanes as may start a retry. All of them would be 255 for each retry of a watcher with 256 slices. */
export function takeRefused(receiver: Receiver): Member[] {
  const taken = [...receiver.refused].slice(0, retryRoomOf(receiver));
  for (const member of taken) receiver.refused.delete(member);
  return taken;
}

/** Whether one of its lanes is ready. */
export const isReady = ({ members }: Receiver): boolean =>
  [...members].some((member) => {
    const { answered, others } = member.account.ready;
    return answered.has(member) || others.has(member);
  });

/** Below this duration an attempt costs more processor time than slot time: 0.21 ms of the thread times 1,024 slots. */
export const COST_MS_MIN = 215;
/** Charged for an attempt at an unproven receiver until it ends, as if it hung. */
export const GUESS_MS = 10_000;

/** Charges what the attempt will probably cost. The returned function replaces it with the true cost. */
export function chargeGuess(member: Member, kind: Kind): (costMs: number) => void {
  const { account, receiver } = member;
  const isProven = kind === 'proven';
  const guessMs = isProven ? Math.max(receiver.pace.averageMs, COST_MS_MIN) : GUESS_MS;
  const refundMs = isProven ? 0 : GUESS_MS - COST_MS_MIN;
  charge(member, guessMs);
  account.refundMs += refundMs;
  return (costMs) => {
    charge(member, costMs - guessMs);
    account.refundMs -= refundMs;
  };
}

function charge({ account, receiver }: Member, ms: number): void {
  receiver.virtualMs += ms;
  account.virtualMs += ms;
}
