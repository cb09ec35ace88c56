/**
 * The fair queue's state of each watcher and of its leased lanes.
 */
import type { ReceiverPace } from './receiver.ts';

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
  /** The virtual time that its receivers have reached. */
  servedMs: number;
  readonly line: Set<Member>;
  /** `answered`: the receiver answered its last attempt. `others`: it may hang. */
  readonly ready: Record<'answered' | 'others', Set<Member>>;
  readonly open: Record<Kind | 'hung', number>;
  /** How many of its lanes here have an attempt that was handed over. */
  hanging: number;
  /** Whether an attempt was handed over since this account began. */
  hasHung: boolean;
};

export type Member = {
  readonly lane: LaneInLine;
  readonly account: Account;
  readonly receiver: ReceiverPace;
  /** The next attempt; or the end of reading, if rows have to be read first. */
  readonly take: () => Begin | Promise<void> | undefined;
  virtualMs: number;
  open: number;
  hung: number;
  wants: boolean;
  /** While it reads, it keeps its place, because another lane of the same watcher would have to read too. */
  isReading: boolean;
};

/** When this many receivers of a watcher hang at once, and this share of its lanes here, none of its receivers counts as proven. */
const TURNED_MIN = 4;
const TURNED_SHARE = 0.1;

export const createAccount = (watcherId: number, virtualMs: number): Account => ({
  watcherId,
  virtualMs,
  servedMs: 0,
  line: new Set(),
  ready: { answered: new Set(), others: new Set() },
  open: { unproven: 0, proven: 0, hung: 0 },
  hanging: 0,
  hasHung: false,
});

export const createMember = (fields: Pick<Member, 'lane' | 'account' | 'receiver' | 'take'>): Member => ({
  ...fields,
  virtualMs: fields.account.servedMs,
  open: 0,
  hung: 0,
  wants: false,
  isReading: false,
});

/** Attempts under way. */
export const openOf = ({ unproven, proven, hung }: Account['open']): number => unproven + proven + hung;

/** Whether so many formerly answering receivers hang that it may be an attack, so that the others may follow. */
export const hasTurned = ({ line, hanging }: Account): boolean =>
  hanging >= Math.max(TURNED_MIN, TURNED_SHARE * line.size);

export const kindOf = ({ receiver, account }: Member): Kind =>
  receiver.isProven && !hasTurned(account) ? 'proven' : 'unproven';
