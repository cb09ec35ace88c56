/**
 * Sends several deliveries again: the chosen ones, or all of a filter. It says how many and to whom before it starts, shows its
 * progress, and can be stopped.
 */
import { useEffect, useRef, useState } from 'preact/hooks';
import { useStop } from '../api/attempt.ts';
import { ApiError, call, callPage, holdSession } from '../api/client.ts';
import { type DeliveryFilter, hasFilter, queryOf } from '../api/filter.ts';
import { isWatcherSuspended } from '../api/watcher-names.ts';
import { formatCount } from '../format/number.ts';
import { hostOf } from '../format/short.ts';
import { Dialog } from '../parts/dialog.tsx';
import { Icon } from '../parts/icon.tsx';
import { Problem } from '../parts/problem.tsx';
import { chosenWatcher } from '../state/session.ts';
import { texts } from '../texts.ts';

type Props = {
  /** The chosen deliveries with their receivers. Without any, all of the filter are meant. */
  picked: ReadonlyMap<number, string | null>;
  filter: DeliveryFilter;
  onClose(hasStarted: boolean): void;
};
type Progress = {
  done: number;
  failed: { id: number; message: string }[];
  isOver: boolean;
  error?: ApiError;
};
/** Where a redelivery of all goes on after an answer that was lost. */
type Place = { done: number; cursor: string | undefined };

const SHOWN_FAILURES_MAX = 5;

export function RedeliverDialog({ picked, filter, onClose }: Props) {
  const ids = [...picked.keys()];
  const isEmpty = ids.length === 0 && !hasFilter(filter);
  const [count, setCount] = useState<{ count: number; is_complete: boolean } | undefined>(
    ids.length > 0 ? { count: ids.length, is_complete: true } : undefined,
  );
  const [progress, setProgress] = useState<Progress | undefined>(undefined);
  const [error, setError] = useState<string | undefined>(undefined);
  const stopped = useStop();
  const [isStopping, setStopping] = useState(false);
  const place = useRef<Place>({ done: 0, cursor: undefined });
  useEffect(() => {
    if (ids.length > 0 || isEmpty) return;
    call('GET /api/notifications/log/count', { query: queryOf(filter) }).then(setCount, (failure: unknown) =>
      setError(messageOf(failure)),
    );
  }, []);
  const start = () => {
    stopped.current = false;
    setStopping(false);
    const run =
      ids.length > 0
        ? sendEach(ids, setProgress, stopped)
        : sendAll(filter, place.current, setProgress, stopped);
    run.catch((failure: unknown) => {
      if (!(failure instanceof ApiError)) throw failure;
      setProgress((present) => ({ ...(present ?? { done: 0, failed: [] }), isOver: true, error: failure }));
    });
  };
  const total = count?.count ?? 0;
  const countText = `${formatCount(total)}${count?.is_complete === false ? '+' : ''}`;
  const isRunning = progress !== undefined && !progress.isOver;
  const stop = () => {
    stopped.current = true;
    setStopping(true);
  };
  const close = () => (isRunning ? stop() : onClose(progress !== undefined));
  /** An answer was lost, so how many of its step are due is unknown. */
  const isUnknown =
    ids.length === 0 &&
    progress?.error !== undefined &&
    (progress.error.status === 0 || progress.error.status >= 500);
  const watcher = chosenWatcher();
  const skipped = total - (progress?.done ?? 0);
  return (
    <Dialog title={texts.redeliver.title} onClose={close} isKept={isRunning}>
      <Problem text={error} />
      {progress === undefined && (
        <p class="prose">
          {isEmpty
            ? texts.redeliver.chooseFirst
            : count === undefined
              ? texts.redeliver.counting
              : texts.redeliver.question(countText, {
                  total,
                  receivers: receiversOf([...picked.values()]),
                  areChosen: ids.length > 0,
                })}
        </p>
      )}
      {watcher !== undefined && isWatcherSuspended(watcher.id) && (
        <p class="is-warn">{texts.redeliver.suspended(watcher.name)}</p>
      )}
      {progress !== undefined && (
        <div role="status">
          <progress
            max={Math.max(total, progress.done, 1)}
            // More than the count says may match.
            value={count?.is_complete === false && isRunning ? undefined : progress.done}
            aria-label={texts.redeliver.title}
          />
          <p>
            {progress.isOver
              ? texts.redeliver.over(
                  formatCount(progress.done),
                  ids.length === 0 && !stopped.current && progress.error === undefined ? skipped : 0,
                )
              : texts.redeliver.running(formatCount(progress.done), countText)}
            {isRunning && isStopping && ` ${texts.redeliver.stopping}`}
          </p>
          {isUnknown && <p>{texts.redeliver.lost(place.current.cursor === undefined)}</p>}
          {progress.error !== undefined && (
            <p class="problem">
              <Icon name="failing" />
              {progress.error.message}
            </p>
          )}
          {progress.failed.slice(0, SHOWN_FAILURES_MAX).map(({ id, message }) => (
            <p key={id} class="problem">
              <Icon name="failing" />
              {id}: {message}
            </p>
          ))}
          {progress.failed.length > SHOWN_FAILURES_MAX && (
            <p>{texts.redeliver.moreFailed(progress.failed.length - SHOWN_FAILURES_MAX)}</p>
          )}
        </div>
      )}
      <footer>
        {isRunning ? (
          <button type="button" class="button" disabled={isStopping} onClick={stop}>
            {texts.redeliver.stop}
          </button>
        ) : (
          <button type="button" class="button" onClick={close}>
            {progress === undefined ? texts.cancel : texts.close}
          </button>
        )}
        {isUnknown && !isRunning && (
          <button type="button" class="button is-first" onClick={start}>
            {texts.redeliver.goOn}
          </button>
        )}
        {progress === undefined && !isEmpty && (
          <button type="button" class="button is-first" disabled={total === 0} onClick={start}>
            {count === undefined ? texts.redeliver.start : texts.redeliver.startCount(countText)}
          </button>
        )}
      </footer>
    </Dialog>
  );
}

async function sendEach(
  ids: readonly number[],
  show: (progress: Progress) => void,
  stopped: { current: boolean },
): Promise<void> {
  const failed: Progress['failed'] = [];
  const checkSession = holdSession();
  let done = 0;
  show({ done, failed, isOver: false });
  for (const id of ids) {
    if (stopped.current) break;
    checkSession();
    try {
      await call('POST /api/notifications/log/{id}/redeliver', { path: { id } });
      done += 1;
    } catch (error) {
      if (!(error instanceof ApiError) || error.status === 401) throw error;
      failed.push({ id, message: error.message });
    }
    show({ done, failed: [...failed], isOver: false });
  }
  show({ done, failed, isOver: true });
}

async function sendAll(
  filter: DeliveryFilter,
  place: Place,
  show: (progress: Progress) => void,
  stopped: { current: boolean },
): Promise<void> {
  const checkSession = holdSession();
  show({ done: place.done, failed: [], isOver: false });
  do {
    checkSession();
    const { data } = await callPage('POST /api/notifications/log/redeliver', {
      query: { ...queryOf(filter), cursor: place.cursor },
    });
    place.done += data.redelivered;
    place.cursor = data.cursor ?? undefined;
    show({ done: place.done, failed: [], isOver: false });
  } while (place.cursor !== undefined && !stopped.current);
  show({ done: place.done, failed: [], isOver: true });
}

/** The receivers of the chosen deliveries. */
function receiversOf(given: readonly (string | null)[]): string | undefined {
  const origins = new Set(given.flatMap((origin) => origin ?? []));
  const [first] = origins;
  if (first === undefined) return undefined;
  return origins.size === 1 ? hostOf(first) : texts.redeliver.receivers(hostOf(first), origins.size - 1);
}

const messageOf = (error: unknown): string => {
  if (error instanceof ApiError) return error.message;
  throw error;
};
