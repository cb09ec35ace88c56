/**
 * The operator's choice of a watcher, in the rail and in place of pages that need one.
 */
import { useEffect, useId } from 'preact/hooks';
import { call } from '../api/client.ts';
import { useResource } from '../api/resource.ts';
import { noteWatchers, watcherChanges } from '../api/watcher-names.ts';
import { chooseWatcher, chosenWatcher, isOperator } from '../state/session.ts';
import { texts } from '../texts.ts';
import { PageHead } from './page.tsx';

const WATCHERS_MAX = '1000';
/** How soon a new watcher has its name in live rows. */
const REFRESH_MS = 60_000;

export function WatcherChoice() {
  const id = useId();
  const { state, reload } = useResource(
    'watchers for choice',
    (signal) => call('GET /api/admin/watchers', { query: { limit: WATCHERS_MAX }, signal }),
    { everyMs: REFRESH_MS, when: isOperator.value },
  );
  const { value: changes } = watcherChanges;
  useEffect(() => {
    if (changes > 0) void reload();
  }, [changes, reload]);
  const chosen = chosenWatcher();
  useEffect(() => {
    if (state.value.data !== undefined) noteWatchers(state.value.data);
  }, [state.value.data]);
  const watchers = state.value.data ?? (chosen === undefined ? [] : [chosen]);
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
