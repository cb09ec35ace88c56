/**
 * Reads from a node's answer whether it met a limit: too many requests, or too much data in one request. Vendors
 * agree on neither codes nor wording, so both are read.
 */
import { jsonText } from '../../core/json.ts';

/** `waitMs` is undefined if the node names no pause. A quota is a limit for a day or a month. */
export type Limit =
  | { kind: 'too often'; waitMs: number | undefined; isQuota: boolean }
  | { kind: 'too much' };

/** The answer was larger than Chainbell reads, which is not a limit of the node: contracts choose what a call returns. */
export type OwnLimit = { kind: 'too large' };

type HttpRefusal = {
  statusCode: number;
  retryAfter: string | undefined;
  /** The beginning of the body. */
  text: string;
  now: Date;
};

type RpcRefusal = { code: number; message: string; data?: unknown };

/** The limit in an HTTP answer with another status than 200. Undefined if the answer is about something else. */
export function limitOfHttp({ statusCode, retryAfter, text, now }: HttpRefusal): Limit | undefined {
  const wording = REVERT.test(text) ? '' : text;
  if (statusCode === 413 || TOO_MUCH.test(wording)) return { kind: 'too much' };
  const says = statusCode < 500 && TOO_OFTEN.test(wording);
  if (statusCode !== 429 && !says && !(statusCode === 503 && retryAfter !== undefined)) return undefined;
  return tooOften(text, parseRetryAfter(retryAfter, now));
}

/** The limit in a JSON-RPC error. Undefined if the error is about something else. */
export function limitOfError({ code, message, data }: RpcRefusal): Limit | undefined {
  // The contract, and so anyone, chooses the text of a revert.
  if (EXECUTION_CODES.has(code) || REVERT.test(message)) return undefined;
  if (TOO_MUCH.test(message)) return { kind: 'too much' };
  if (OF_THE_QUESTION.test(message)) return undefined;
  if (!TOO_OFTEN_CODES.has(code) && !TOO_OFTEN.test(message)) return undefined;
  return tooOften(message, data === undefined ? undefined : waitOfText(jsonText(data) ?? ''));
}

/** The execution API has code 3 for a revert. Nethermind and OpenEthereum have the other one for every failure of the EVM. */
export const EXECUTION_CODES: ReadonlySet<number> = new Set([3, -32_015]);

const REVERT = /revert|VM execution error/i;

/**
 * -32005 EIP-1474 "limit exceeded" (Infura, Erigon, BSC) · -32007 QuickNode · -32029 and 429 gateways that repeat the HTTP
 * status (Alchemy). -32016 is missing: OP-stack proxies (Base) have it for "over rate limit", Nethermind for a timeout.
 */
const TOO_OFTEN_CODES = new Set([-32_005, -32_007, -32_029, 429]);

const TOO_OFTEN =
  /rate.?limit|too many.{0,20}requests?|(request|call|usage|throughput|capacity|credits?) (limit|quota)|requests? per (second|minute|hour|day)|exceed.{0,60}(capacity|quota|compute units|credits|requests|throughput)|(capacity|quota|compute units|credits|request count).{0,40}exceed|(daily|monthly) .{0,20}(limit|quota|count|capacity)|throttl|slow down/i;

/** Messages of geth, Erigon, Nethermind, Besu, dRPC, and proxies that count bytes. */
const TOO_MUCH =
  /(response|result|payload|content|body|entity)( size)?( is)? too (large|big)|batch.{0,20}too (large|big|many)|batch( size| request| item)? limit|(max\w*|exceed\w*|limit\w*|more than).{0,30}\bbatch|batch of more than|too many.{0,20} in (\w+ )?batch/i;

/** Limits on the query itself, for which waiting does not help. */
const OF_THE_QUESTION = /query returned more than|block range|range.{0,20}(large|wide)|\bgas\b/i;

const WAIT =
  /(?:try again|retry|wait)(?: in| after)?:? (\d{1,9}(?:\.\d{1,9})?) ?(ms|milliseconds?|s|sec\w*|m|min\w*)\b/;

const QUOTA = /daily|monthly|per (day|month)|24.?h/i;

function tooOften(text: string, waitMs: number | undefined): Limit {
  return { kind: 'too often', waitMs: waitMs ?? waitOfText(text), isQuota: QUOTA.test(text) };
}

/** Parses seconds or a date (RFC 9110 section 10.2.3). */
function parseRetryAfter(text: string | undefined, now: Date): number | undefined {
  if (text === undefined) return undefined;
  if (/^\s*\d+(\.\d+)?\s*$/.test(text)) return Math.ceil(Number(text) * 1_000);
  const at = Date.parse(text);
  return Number.isNaN(at) ? undefined : Math.max(0, at - now.getTime());
}

/** Parses "try again in 10 seconds", "retry after 500ms", and Infura's `"backoff_seconds": 30`. */
function waitOfText(text: string): number | undefined {
  const backOff = /"backoff_seconds": ?(\d{1,9}(?:\.\d{1,9})?)/.exec(text);
  if (backOff !== null) return Math.ceil(Number(backOff[1]) * 1_000);
  const found = WAIT.exec(text.toLowerCase());
  if (found === null) return undefined;
  const [, count = '', unit = ''] = found;
  const unitMs =
    unit.startsWith('ms') || unit.startsWith('milli') ? 1 : unit.startsWith('m') ? 60_000 : 1_000;
  return Math.ceil(Number(count) * unitMs);
}
