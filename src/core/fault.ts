/**
 * The only error that reaches a caller. Any other thrown error is a bug and is only logged.
 */

/** The HTTP status and whether a retry makes sense depend on this code alone. */
export type FaultCode =
  | 'invalid'
  | 'unauthorized'
  /** The caller is known, but not allowed. */
  | 'forbidden'
  | 'not_found'
  | 'conflict'
  /** The caller exceeded a rate limit. Retrying later succeeds. */
  | 'limited'
  /** A node gave an answer that contradicts itself or another one. */
  | 'inconsistent'
  | 'unavailable';

/** One problem of an input: its place (such as `/webhook_url`) and a message. */
export type Problem = { path: string; message: string };

export class Fault extends Error {
  override readonly name = 'Fault';
  readonly code: FaultCode;
  readonly problems: readonly Problem[];
  /** A proof or other nodes contradict the answer of the node that caused it. */
  readonly isDisproof: boolean;
  /** Tells Faults of one code apart, for programs: `revoked_key`. */
  readonly reason: string | undefined;

  constructor(
    code: FaultCode,
    message: string,
    options: { problems?: Problem[]; cause?: unknown; isDisproof?: boolean; reason?: string } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.problems = options.problems ?? [];
    this.isDisproof = options.isDisproof ?? false;
    this.reason = options.reason;
  }
}

/** A Fault because of a node's false answer, as a proof or other nodes have shown. */
export const disproof = (message: string): Fault => new Fault('inconsistent', message, { isDisproof: true });

/** The text of anything thrown, including its chain of causes, for logs and messages. */
export function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const own = ownMessage(error);
  const cause = error.cause === undefined ? '' : messageOf(error.cause);
  return cause === '' || own.includes(cause) ? own : `${own}: ${cause}`;
}

function ownMessage(error: Error): string {
  // The message of OpenSSL is a line of its source code with a line break.
  if (isTlsError(error) && 'reason' in error) return `TLS: ${String(error.reason)}`;
  if (error.message !== '') return error.message;
  // The message of an AggregateError is empty, for example if all addresses of a host refused a connection.
  return error instanceof AggregateError ? error.errors.map(messageOf).join('; ') : error.name;
}

/** Whether the two sides could not agree on TLS, for example because one of them speaks plain HTTP. */
export const isTlsError = (error: unknown): boolean =>
  error instanceof Error &&
  (('code' in error && String(error.code).startsWith('ERR_SSL_')) || isTlsError(error.cause));

/** Returns the result of the work or the Fault that it throws. Rethrows other errors. */
export function orFault<T>(work: () => T): T | Fault {
  try {
    return work();
  } catch (error) {
    if (error instanceof Fault) return error;
    throw error;
  }
}
