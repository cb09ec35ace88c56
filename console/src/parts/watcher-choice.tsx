/**
 * The operator's choice of a watcher, in the rail and in place of pages that need one.
 */
import { useEffect, useId } from 'preact/hooks';
import { callPage, loadPages } from '../api/client.ts';
import { SLOW_MS, useResource } from '../api/resource.ts';
import type { Data } from '../api/types.ts';
import { noteWatchers, watcherChanges } from '../api/watcher-names.ts';
import { chooseWatcher, chosenWatcher, isOperator } from '../state/session.ts';
import { texts } from '../texts.ts';
import { PageHead } from './page.tsx';

type Watcher = Data<'GET /api/admin/watchers'>[number];

const PAGE_WATCHERS = '1000';
/** Bounds what each minute loads. */
const PAGES_MAX = 10;

export function WatcherChoice() {
  const id = useId();
  // Live rows get the names of new watchers from here.
  const { state, reload } = useResource('watchers for choice', loadWatchers, {
    everyMs: SLOW_MS,
    when: isOperator.value,
  });
  const { value: changes } = watcherChanges;
  useEffect(() => {
    if (changes > 0) void reload();
  }, [changes, reload]);
  const chosen = chosenWatcher();
  useEffect(() => {
    if (state.value.data !== undefined) noteWatchers(state.value.data);
  }, [state.value.data]);
  const loaded: readonly { id: number; name: string }[] = state.value.data ?? [];
  const hasChosen = chosen === undefined || loaded.some((one) => one.id === chosen.id);
  const watchers = hasChosen ? loaded : [...loaded, chosen];
  return (
    <div class="field">
      <label for={id}>{texts.watcherChoice.label}</label>
      <select
        id={id}
        class="input is-small"
        value={String(chosen?.id ?? '')}
        onChange={(event) => {
          const watcher = watchers.find((one) => String(one.id) === event.currentTarget.value);
          chooseWatcher(watcher === undefined ? undefined : { id: watcher.id, name: watcher.name });
        }}
      >
        <option value="">{texts.watcherChoice.all}</option>
        {watchers.map((one) => (
          <option key={one.id} value={String(one.id)}>
            {one.name}
          </option>
        ))}
      </select>
    </div>
  );
}

async function loadWatchers(signal: AbortSignal): Promise<Watcher[]> {
  const loadPage = (cursor: string | undefined) =>
    callPage('GET /api/admin/watchers', { query: { limit: PAGE_WATCHERS, cursor }, signal });
  return (await loadPages(loadPage, PAGES_MAX)).data;
}

/** A page that shows the data of one watcher. */
export function WatcherNeeded({ title }: { title: string }) {
  return (
    <>
      <PageHead title={title} note={texts.watcherChoice.needed} />
      <div class="empty">
        <WatcherChoice />
      </div>
    </>
  );
}
