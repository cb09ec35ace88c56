/**
 * The attempts of a delivery, newest first: the next one with its countdown, each past one with its answer, and the block at the
 * bottom. Long runs of the same outcome are one entry.
 */
import { useState } from 'preact/hooks';
import type { Attempt, DeliveryDetail } from '../api/types.ts';
import { isWatcherSuspended } from '../api/watcher-names.ts';
import { groupDigits } from '../format/amount.ts';
import { formatAttempt, formatDuration } from '../format/number.ts';
import { visible } from '../format/short.ts';
import { texts } from '../texts.ts';
import { Icon } from './icon.tsx';
import { hrefOfReceiver } from './page.tsx';
import { Countdown, isDue, Time } from './values.tsx';

/** Entries at the top that are always shown one by one. */
const SHOWN_FIRST = 10;
/** Shorter runs are shown one by one. */
const RUN_MIN = 4;

/** All attempts so far. Of a delivery that is retried for long, only the newest of them are stored. */
export const attemptCountOf = ({ attempts, retry_count: failures }: DeliveryDetail): number =>
  Math.max(attempts.length, failures + attempts.filter(({ outcome }) => outcome === 'success').length);

type Entry = { attempt: Attempt; number: number; before: Attempt | undefined };

export function TimeLine({ delivery, onDeliver }: { delivery: DeliveryDetail; onDeliver(): void }) {
  const [isWhole, setWhole] = useState(false);
  const { attempts, block, created_at: createdAt } = delivery;
  const count = attemptCountOf(delivery);
  const entries = attempts.map(
    (attempt, index): Entry => ({ attempt, number: count - index, before: attempts[index + 1] }),
  );
  const shown = isWhole ? entries.map((entry) => [entry]) : groupRuns(entries);
  return (
    <ol class="timeline">
      <Next delivery={delivery} onDeliver={onDeliver} />
      {shown.map((run) => (
        <Run key={run[0]?.attempt.id} run={run} createdAt={createdAt} onOpen={() => setWhole(true)} />
      ))}
      <li>
        <Icon name="waiting" />
        <div class="first-line">
          <span>
            {texts.timeline.inBlock} <span class="mono">#{groupDigits(String(delivery.block_number))}</span>
          </span>
          <span>
            <Time at={block.mined_at ?? createdAt} />
          </span>
        </div>
      </li>
    </ol>
  );
}

/** Whether a next attempt is planned that may be made now instead. */
export const canDeliverNow = ({ state, status }: DeliveryDetail): boolean =>
  state === 'waiting' && status !== 'sending' && status !== 'held';

function Next({ delivery, onDeliver }: { delivery: DeliveryDetail; onDeliver(): void }) {
  const { status, attempts, next_retry_at: nextAt, origin, watcher_id: watcherId } = delivery;
  const { confirmations, confirmations_needed: needed } = delivery;
  const count = attemptCountOf(delivery);
  if (status === 'sending')
    return (
      <li class="is-next">
        <Icon name="sending" tone="is-busy" />
        <div class="first-line">
          <span class="medium">{texts.timeline.underWay(count + 1)}</span>
          <span />
        </div>
      </li>
    );
  if (status === 'held')
    return (
      <li class="is-next">
        <Icon name="held" />
        <div class="next-box is-calm">
          <div>
            {texts.timeline.held(confirmations, needed)}
            <p class="second-line">{texts.timeline.heldNote}</p>
          </div>
        </div>
      </li>
    );
  if (!canDeliverNow(delivery)) return null;
  if (isWatcherSuspended(watcherId))
    return (
      <li class="is-next">
        <Icon name="suspended" tone="is-warn" />
        <div class="next-box is-calm">
          <div>
            {texts.timeline.suspended(count + 1)}
            <p class="second-line">
              <a class="link" href="/console/watchers">
                {texts.screens.watchers}
              </a>
            </p>
          </div>
        </div>
      </li>
    );
  return (
    <li class="is-next">
      <Icon name="waiting" tone={status === 'failing' || status === 'retrying' ? 'is-warn' : ''} />
      <div class={`next-box ${status === 'waiting' ? 'is-calm' : ''}`}>
        <div>
          {nextAt === null ? (
            <>
              {texts.timeline.due(count + 1)}
              {origin !== null && (
                <p class="second-line">
                  <a class="link" href={hrefOfReceiver({ origin, watcher_id: watcherId })}>
                    {texts.timeline.receiver}
                  </a>
                </p>
              )}
            </>
          ) : (
            <>
              {texts.timeline.next(count + 1, isDue(nextAt))}{' '}
              <span class="countdown">
                <Countdown to={nextAt} />
              </span>
              <p class="second-line">
                <Time at={nextAt} />
                {attempts[0] !== undefined &&
                  `, ${texts.timeline.after(gap(endOf(attempts[0]), nextAt), count)}`}
              </p>
            </>
          )}
        </div>
        <button type="button" class="button is-first is-small" onClick={onDeliver}>
          {texts.timeline.deliverNow}
        </button>
      </div>
    </li>
  );
}

function Run({ run, createdAt, onOpen }: { run: Entry[]; createdAt: string; onOpen(): void }) {
  const [first] = run;
  const last = run.at(-1);
  if (first === undefined || last === undefined) return null;
  const { attempt, number, before } = first;
  const isGood = attempt.outcome === 'success';
  if (run.length > 1)
    return (
      <li>
        <Icon name={isGood ? 'delivered' : 'failing'} tone={isGood ? 'is-ok' : 'is-bad'} />
        <div class="first-line">
          <span>{texts.timeline.run(titleOf(attempt), run.length)}</span>
          <button type="button" class="link" onClick={onOpen}>
            {texts.timeline.show(run.length)}
          </button>
        </div>
        <p class="second-line">
          <Time at={last.attempt.started_at} /> {texts.to} <Time at={attempt.started_at} />
        </p>
      </li>
    );
  return (
    <li>
      <Icon name={isGood ? 'delivered' : 'failing'} tone={isGood ? 'is-ok' : 'is-bad'} />
      <div class="first-line">
        <span class="medium">{titleOf(attempt)}</span>
        <span>
          <Time at={attempt.started_at} /> · {formatAttempt(attempt.duration_ms)}
        </span>
      </div>
      <p class="second-line">
        {before !== undefined
          ? texts.timeline.afterAttempt(number, gap(endOf(before), attempt.started_at))
          : number === 1
            ? texts.timeline.firstAfter(number, gap(createdAt, attempt.started_at))
            : texts.timeline.oldestStored(number)}
        {attempt.revision % 2 === 1 && ` · ${texts.delivery.removal}`}
        {attempt.requests === 2 && ` · ${texts.timeline.repeated}`}
        {attempt.requests === 0 && ` · ${texts.timeline.nothingSent}`}
      </p>
      {attempt.response !== null && attempt.response.trim() !== '' && <Answer text={attempt.response} />}
    </li>
  );
}

/** What the receiver answered, only ever as text. Marks that would change the direction of the page's text are kept inside. */
export function Answer({ text }: { text: string }) {
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset is for fields
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by keyboard
    <pre class="answer" dir="ltr" role="group" aria-label={texts.address.answer} tabIndex={0}>
      <bdi>{visible(text)}</bdi>
    </pre>
  );
}

/** `503 Service Unavailable`, or why there is no answer. */
export function titleOf({ status, outcome }: Pick<Attempt, 'status' | 'outcome'>): string {
  if (status === null) return texts.outcomes[outcome] ?? outcome;
  const name = texts.httpStatus[status];
  return name === undefined ? String(status) : `${status} ${name}`;
}

/** The first entries alone, then runs of the same outcome together. */
function groupRuns(entries: readonly Entry[]): Entry[][] {
  const groups: Entry[][] = entries.slice(0, SHOWN_FIRST).map((entry) => [entry]);
  const rest = entries.slice(SHOWN_FIRST);
  for (let index = 0; index < rest.length; ) {
    const start = rest[index];
    if (start === undefined) break;
    let end = index;
    while (end < rest.length && titleOf(rest[end]?.attempt ?? start.attempt) === titleOf(start.attempt))
      end += 1;
    const run = rest.slice(index, end);
    groups.push(...(run.length < RUN_MIN ? run.map((entry) => [entry]) : [run]));
    index = end;
  }
  return groups;
}

const endOf = ({ started_at, duration_ms }: Attempt): string =>
  new Date(Date.parse(started_at) + duration_ms).toISOString();

const gap = (from: string, until: string): string =>
  formatDuration(Math.max(0, Date.parse(until) - Date.parse(from)));
