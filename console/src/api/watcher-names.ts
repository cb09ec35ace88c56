/**
 * The watchers that the operator's page has seen. Events of the stream have only their ids.
 */
import { signal } from '@preact/signals';
import { chosenWatcher } from '../state/session.ts';

type Watcher = { id: number; name: string; state: string };

/** Counts the changes to the list of watchers that this page has made. */
export const watcherChanges = signal(0);
const watchers = signal<ReadonlyMap<number, Watcher>>(new Map());

type Owned = { watcher?: string | undefined; watcher_id?: number | undefined };

/** The name of the watcher to which something belongs, or its id until the name is known. */
export const watcherOf = ({ watcher, watcher_id: id }: Owned): string | undefined =>
  watcher ?? (id === undefined ? undefined : (watchers.value.get(id)?.name ?? String(id)));

/** Its webhooks wait until it is resumed. What belongs to the watcher that the operator has chosen names none. */
export const isWatcherSuspended = (id: number | undefined = chosenWatcher()?.id): boolean =>
  id !== undefined && watchers.value.get(id)?.state === 'suspended';

export function noteWatchers(seen: readonly Watcher[]): void {
  watchers.value = new Map(seen.map((watcher) => [watcher.id, watcher]));
}
