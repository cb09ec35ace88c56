/**
 * The one error that reaches a caller. Anything else that is thrown is a bug and is only logged.
 */

/** What a caller may do about it: HTTP status and "worth retrying" are functions of this code alone. */
export type FaultCode =
  | 'invalid'
  | 'unauthorized'
  /** Known, and refused. */
  | 'forbidden'
  | 'not_found'
  | 'conflict'
  /** Asked too often; a while later it works. */
  | 'limited'
  /** A node gave an answer that contradicts itself or another one. */
  | 'inconsistent'
  | 'unavailable';

/** One thing wrong with an input: where (`/webhook_url`), and what. */
export type Problem = { path: string; message: string };

export class Fault extends Error {
  override readonly name = 'Fault';
  readonly code: FaultCode;
  readonly problems: readonly Problem[];
  /** A proof or other nodes contradict the answer of the node that caused it. */
  readonly isDisproof: boolean;

  constructor(
    code: FaultCode,
    message: string,
    options: { problems?: Problem[]; cause?: unknown; isDisproof?: boolean } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.problems = options.problems ?? [];
    this.isDisproof = options.isDisproof ?? false;
  }
}

/** A Fault whose cause is a false answer of a node, shown by a proof or by other nodes. */
export const disproof = (message: string): Fault => new Fault('inconsistent', message, { isDisproof: true });

/** The text of anything thrown, for logs and messages; `cause` chains are joined. */
export function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // An AggregateError (all addresses of a host refused) has an empty message itself.
  const own =
    error.message !== ''
      ? error.message
      : error instanceof AggregateError
        ? error.errors.map(messageOf).join('; ')
        : error.name;
  const cause = error.cause === undefined ? '' : messageOf(error.cause);
  return cause === '' || own.includes(cause) ? own : `${own}: ${cause}`;
}

/** What the work returns, or the Fault that it throws; anything else goes on. */
export function orFault<T>(work: () => T): T | Fault {
  try {
    return work();
  } catch (error) {
    if (error instanceof Fault) return error;
    throw error;
  }
}
