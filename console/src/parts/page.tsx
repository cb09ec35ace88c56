/**
 * What every page has: a heading with its actions, choices that are links, and what stands in the place of data that is missing,
 * loading or failing.
 */
import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { useLocation } from 'preact-iso';
import { type ApiError, type CallOptions, curlOf, sentenceOf } from '../api/client.ts';
import type { Loaded } from '../api/resource.ts';
import type { Operation } from '../api/types.ts';
import { formatInstant } from '../format/time.ts';
import { localNow, now, onServer } from '../state/clock.ts';
import { zone } from '../state/preferences.ts';
import { texts } from '../texts.ts';
import { Icon } from './icon.tsx';
import { Copy } from './values.tsx';

/** Longer than the slowest list takes to be loaded again. */
const OLD_MS = 180_000;

/** Whether a page was shown before. */
let wasShown = false;

/** The heading, also as the document's title. */
export function PageHead({
  title,
  note,
  children,
}: {
  title: string;
  note?: ComponentChildren;
  children?: ComponentChildren;
}) {
  useEffect(() => {
    document.title = `${title} · Chainbell`;
  }, [title]);
  // The link that led here may be gone with its page. At the start, the focus stays before the main menu.
  useEffect(() => {
    if (wasShown && document.activeElement === document.body)
      document.getElementById('main')?.focus({ preventScroll: true });
    wasShown = true;
  }, []);
  return (
    <div class="head">
      <div>
        <h1>{title}</h1>
        {note !== undefined && <p>{note}</p>}
      </div>
      {children !== undefined && <div class="actions">{children}</div>}
    </div>
  );
}

/** Copies the page's request as a command. */
export function CopyCurl<O extends Operation>({
  operation,
  options = {},
}: {
  operation: O;
  options?: CallOptions<O>;
}) {
  return (
    <Copy text={() => curlOf(operation, options)} label={texts.copyCurl}>
      {texts.copyCurl}
    </Copy>
  );
}

/** Values of the address bar's query, and links that change some of them. */
export function usePageQuery(): {
  query: Record<string, string>;
  hrefWith(changes: Record<string, string | undefined>): string;
  change(changes: Record<string, string | undefined>): void;
} {
  const { path, query, route } = useLocation();
  const hrefWith = (changes: Record<string, string | undefined>) => {
    const next = new URLSearchParams();
    for (const [name, value] of Object.entries({ ...query, ...changes }))
      if (value !== undefined && value !== '') next.set(name, value);
    const text = next.toString();
    return text === '' ? path : `${path}?${text}`;
  };
  return { query, hrefWith, change: (changes) => route(hrefWith(changes)) };
}

/** One of a few values, each a link, so that the choice is in the address. */
export function Choice({
  label,
  options,
  value,
  hrefOf,
}: {
  label: string;
  options: readonly { value: string; text: string; count?: string | undefined }[];
  value: string;
  hrefOf(value: string): string;
}) {
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset is for fields, and these are links
    <div class="choice" role="group" aria-label={label}>
      {options.map((one) => (
        <a key={one.value} href={hrefOf(one.value)} aria-current={one.value === value ? 'true' : undefined}>
          {one.text}
          {one.count !== undefined && <span>{one.count}</span>}
        </a>
      ))}
    </div>
  );
}

/** The list of receivers with this one open. `show`: those of the list. */
export function hrefOfReceiver(
  { origin, watcher_id: watcher }: { origin: string; watcher_id?: number | undefined },
  show?: 'failing',
): string {
  const query = { ...(show && { show }), origin, ...(watcher !== undefined && { watcher: String(watcher) }) };
  return `/console/receivers?${new URLSearchParams(query)}`;
}

/** The period of statistics, 24 hours or 30 days. */
export type Period = '24h' | '30d';
export const periodOf = (query: Record<string, string>): Period => (query.period === '30d' ? '30d' : '24h');

export function PeriodChoice() {
  const { query, hrefWith } = usePageQuery();
  return (
    <Choice
      label={texts.period}
      value={periodOf(query)}
      hrefOf={(value) => hrefWith({ period: value === '24h' ? undefined : value })}
      options={[
        { value: '24h', text: texts.periods['24h'] },
        { value: '30d', text: texts.periods['30d'] },
      ]}
    />
  );
}

/** Why data is missing, in its place. Asking again for what was refused is of no use, so a link leads away from it. */
export function Failed({ error, onRetry }: { error: ApiError; onRetry(): void }) {
  const { path, url } = useLocation();
  const hasParameters = url.includes('?');
  return (
    <div class="notice is-bad" role="alert">
      <Icon name="failing" />
      <div>
        <p>{error.message}</p>
        {error.problems.map(sentenceOf).map((text) => (
          <p key={text} class="second">
            {text}
          </p>
        ))}
      </div>
      <div class="actions">
        {error.status === 400 ? (
          <a class="button is-small" href={hasParameters ? path : '/console'}>
            {hasParameters ? texts.withoutParameters : texts.notFound.back}
          </a>
        ) : (
          <button type="button" class="button is-small" onClick={onRetry}>
            {texts.tryAgain}
          </button>
        )}
      </div>
    </div>
  );
}

/** Data, or what stands in its place. Old data stays, with a line that says of when it is. */
export function Loading<T>({
  loaded,
  isOld = false,
  isLoadedOnce = false,
  reload,
  ghost = <Ghosts />,
  children,
}: {
  loaded: Loaded<T>;
  /** The newest answer didn't have the data. */
  isOld?: boolean;
  /** The page doesn't load the data again by itself, so its age says nothing. */
  isLoadedOnce?: boolean;
  reload(): Promise<void>;
  ghost?: ComponentChildren;
  children(data: T): ComponentChildren;
}) {
  const { data, error } = loaded;
  if (data === undefined && error !== undefined)
    return <Failed error={error} onRetry={() => void reload()} />;
  if (data === undefined) return <div class="is-late">{ghost}</div>;
  return (
    <>
      <AsOf loaded={loaded} isOld={isOld} isLoadedOnce={isLoadedOnce} />
      {children(data)}
    </>
  );
}

/** The time of the data, if it may have changed since. */
function AsOf({
  loaded: { at, error },
  isOld,
  isLoadedOnce,
}: {
  loaded: Loaded<unknown>;
  isOld: boolean;
  isLoadedOnce: boolean;
}) {
  if (at === undefined) return null;
  const isRecent = isLoadedOnce || localNow.value - at < OLD_MS;
  if (!isOld && error === undefined && isRecent) return null;
  return (
    <p class="below is-warn">
      {texts.asOf(formatInstant(onServer(at), { ms: now.value, zone: zone.value }))} {error?.message}
    </p>
  );
}

/** Bars where rows will be. They appear only if loading takes a while. */
export function Ghosts({ rows = 8 }: { rows?: number | undefined }) {
  return (
    <div class="table" role="status" aria-label={texts.loading}>
      <table aria-hidden="true">
        <tbody>
          {Array.from({ length: rows }, (_, index) => (
            <tr key={index}>
              <td>
                <span class="ghost" />
              </td>
              <td>
                <span class="ghost" />
              </td>
              <td>
                <span class="ghost" />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Links below a list, to its first page and to the next one. */
export function PageLinks({
  next,
  words = { first: texts.firstPage, next: texts.nextPage },
}: {
  next: string | undefined;
  words?: { first: string; next: string };
}) {
  const { query, hrefWith } = usePageQuery();
  return (
    <p class="below">
      {query.cursor !== undefined && (
        <a class="link" href={hrefWith({ cursor: undefined })}>
          {words.first}
        </a>
      )}
      {next !== undefined && (
        <a class="link" href={hrefWith({ cursor: next })}>
          {words.next}
        </a>
      )}
    </p>
  );
}

/** A page whose address names something that doesn't exist, with a way back. */
export function Missing({
  title,
  note,
  text,
  href,
  back,
}: {
  title: string;
  note?: ComponentChildren;
  text: string;
  href: string;
  back: string;
}) {
  return (
    <>
      <PageHead title={title} note={note} />
      <Empty text={text}>
        <div class="actions">
          <a class="button is-first" href={href}>
            {back}
          </a>
        </div>
      </Empty>
    </>
  );
}

/** Says that there is nothing, why, and what to do. */
export function Empty({ text, children }: { text: ComponentChildren; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="prose">{text}</p>
      {children}
    </div>
  );
}
