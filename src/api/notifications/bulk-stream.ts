/**
 * Answers a stream of changes with a stream of lines. Each group of lines is stored in one transaction before its answers are
 * sent. The next group is read when the client has taken the answers before it.
 */
import type { Static } from 'typebox';
import { Fault, orFault } from '../../core/fault.ts';
import { doOnce, type Once } from '../../store/watchers/idempotency.ts';
import { alignChanged, changeWatchedAddresses } from '../../store/watchers/watched-bulk.ts';
import type { ApiOptions } from '../context.ts';
import { type Answer, toAnswer } from '../http/errors.ts';
import { readLineGroups } from '../http/json-lines.ts';
import { parseLine } from './changes.ts';
import { createAlignment } from './late-alignment.ts';
import { found, type Record, toJson } from './watched-addresses.ts';

type Lines = {
  watcherId: number;
  body: AsyncIterable<Uint8Array>;
  /** The identity of each group, if the request has an Idempotency-Key. */
  once: ((text: string) => Once) | undefined;
  /** Runs the work when it is the watcher's turn. @throws Fault if the key was revoked or the watcher suspended meanwhile */
  inTurn<T>(work: () => Promise<T>): Promise<T>;
};

/** The result of one line: the body of the response to a separate request with the same change. */
type Outcome = { success: true; data: Static<typeof Record> } | ({ success: false } & Answer);

type Options = Pick<ApiOptions, 'database' | 'clock' | 'log' | 'webhookPolicy' | 'limits'>;

/**
 * For each group, a text with one answer line per change, each with its index. If a group can't be stored, a line without an
 * index ends the answers.
 * @throws Fault if the first group can't be stored.
 */
export async function answerLines(options: Options, lines: Lines): Promise<AsyncIterable<string>> {
  const answers = storeGroups(options, lines);
  const first = await answers.next();
  return first.done === true ? answers : resume(first.value, answers, options);
}

async function* storeGroups(
  { database, clock, log, webhookPolicy, limits }: Options,
  { watcherId, body, once, inTurn }: Lines,
): AsyncGenerator<string> {
  const align = createAlignment({ log });
  let index = 0;
  for await (const group of readLineGroups(body)) {
    const parsed = group.lines.map((line) => orFault(() => parseLine(line, webhookPolicy)));
    const changes = parsed.flatMap((one) => (one instanceof Fault ? [] : one));
    const store = async () => {
      const outcomes = await doOnce(database, once?.(JSON.stringify(group)), async (tx) => {
        const at = { now: clock.now, limits };
        const records = (await changeWatchedAddresses(tx, watcherId, changes, at)).values();
        return parsed.map((one): Outcome => {
          const result = one instanceof Fault ? one : orFault(() => toJson(found(records.next().value)));
          return result instanceof Fault
            ? { success: false, ...toAnswer(result) }
            : { success: true, data: result };
        });
      });
      await alignChanged(database, watcherId, changes, clock.now(), align);
      return outcomes;
    };
    const outcomes = await inTurn(store);
    const text = outcomes.map(
      (outcome, offset) => `${JSON.stringify({ index: index + offset, ...outcome })}\n`,
    );
    index += outcomes.length;
    yield text.join('');
  }
}

async function* resume(first: string, rest: AsyncIterable<string>, { log }: Options): AsyncGenerator<string> {
  yield first;
  try {
    yield* rest;
  } catch (error) {
    // The client has hung up, so no line can reach it.
    if (error instanceof Error && 'code' in error && error.code === 'ECONNRESET') return;
    const answer = toAnswer(error);
    if (answer.statusCode >= 500) log.error({ err: error }, 'http.stream_ended');
    yield `${JSON.stringify({ success: false, ...answer })}\n`;
  }
}
