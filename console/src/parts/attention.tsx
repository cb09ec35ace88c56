/**
 * Receivers that fail or hang: since when, why, how much waits, and when the next attempt comes.
 */
import type { Resource } from '../api/resource.ts';
import type { Receiver } from '../api/types.ts';
import { formatAge, formatCount } from '../format/number.ts';
import { hostOf } from '../format/short.ts';
import { formatInstant } from '../format/time.ts';
import { now } from '../state/clock.ts';
import { zone } from '../state/preferences.ts';
import { texts } from '../texts.ts';
import { Icon } from './icon.tsx';
import { hrefOfReceiver, Loading } from './page.tsx';
import { Countdown, isDue } from './values.tsx';

const SHOWN_MAX = 6;

export const isTroubled = ({ state }: Receiver): boolean => state === 'failing' || state === 'hung';

type Props = {
  failing: Resource<Receiver[]>;
  /** Undefined while they load. */
  receivers: readonly Receiver[] | undefined;
  /** With as many receivers there may be more. */
  receiversMax: number;
};

export function Attention({ failing, receivers, receiversMax }: Props) {
  const count = receivers?.length;
  return (
    <section aria-labelledby="attention">
      <Loading loaded={failing.state.value} reload={failing.reload}>
        {(data) => (
          <Troubled
            failing={data}
            count={count}
            suspended={receivers?.filter(({ state }) => state === 'suspended').length ?? 0}
            isPart={count === receiversMax}
          />
        )}
      </Loading>
    </section>
  );
}

function Troubled({
  failing,
  count,
  suspended,
  isPart,
}: {
  failing: Receiver[];
  count: number | undefined;
  suspended: number;
  isPart: boolean;
}) {
  const troubled = failing.filter(isTroubled);
  return (
    <>
      <div class="section-head">
        <h2 id="attention">{texts.attention.title}</h2>
        {count !== undefined && (
          <span>
            {texts.attention.share(troubled.length, `${formatCount(count)}${isPart ? '+' : ''}`, count)}
          </span>
        )}
        {troubled.length > SHOWN_MAX && (
          <div class="actions">
            <a class="link" href="/console/receivers?show=failing">
              {texts.attention.all}
            </a>
          </div>
        )}
      </div>
      {troubled.length > 0 && (
        <ul class="attention">
          {troubled.slice(0, SHOWN_MAX).map((one) => (
            <li key={`${one.watcher_id ?? ''}${one.origin}`}>
              <Icon name={one.state === 'hung' ? 'hung' : 'failing'} />
              <a href={hrefOfReceiver(one, 'failing')} title={one.origin}>
                {hostOf(one.origin)}
              </a>
              <span class="num second">
                {one.next_attempt_at !== null && !isDue(one.next_attempt_at) && `${texts.in} `}
                <Countdown to={one.next_attempt_at} />
              </span>
              <p>
                <b>{reasonOf(one)}</b> {one.watcher !== undefined && `${one.watcher}: `}
                {waitsOf(one)}
              </p>
            </li>
          ))}
        </ul>
      )}
      <p class="below">
        {troubled.length > 0
          ? texts.attention.note
          : count === undefined
            ? ''
            : texts.attention.none(count, suspended)}
      </p>
    </>
  );
}

/** "Answered 503, failing since 11:11 UTC." The last failed attempt: it may answer others well by now. */
export function reasonOf({
  state,
  last_outcome: outcome,
  last_status: status,
  failing_since: since,
}: Receiver): string {
  const what =
    state === 'hung' || outcome === 'timeout'
      ? texts.attention.noAnswer
      : status !== null
        ? texts.attention.answers(status)
        : (texts.outcomes[outcome ?? ''] ?? texts.attention.fails);
  if (since === null) return `${what}.`;
  const at = formatInstant(Date.parse(since), { ms: now.value, zone: zone.value });
  return texts.attention.since(what, at, texts.zones[zone.value]);
}

function waitsOf({ waiting, oldest_waiting_at: oldest, waiting_is_complete: isComplete }: Receiver): string {
  if (waiting === null || waiting === 0) return texts.attention.nothingWaits;
  const count = `${formatCount(waiting)}${isComplete === false ? '+' : ''}`;
  if (oldest === null) return texts.attention.wait(count, waiting);
  return texts.attention.waitSince(count, waiting, formatAge(now.value - Date.parse(oldest)));
}
