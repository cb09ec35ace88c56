/**
 * The names of watchers that the operator's page has seen. Events of the stream have only their ids.
 */
import { signal } from '@preact/signals';

type Watcher = { id: number; name: string };

/** Counts the changes to the list of watchers that this page has made. */
export const watcherChanges = signal(0);
const names = signal<ReadonlyMap<number, string>>(new Map());

export const watcherName = (id: number | undefined): string | undefined =>
  id === undefined ? undefined : (names.value.get(id) ?? String(id));

export function noteWatchers(watchers: readonly Watcher[]): void {
  names.value = new Map(watchers.map(({ id, name }) => [id, name]));
}
