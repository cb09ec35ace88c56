/**
 * The query parameter `watcher`, which limits an operator's request about all watchers to one.
 */
import { Type } from 'typebox';
import { Fault } from '../../core/fault.ts';
import { findWatcher } from '../../store/watchers/watchers.ts';
import type { ApiOptions } from '../context.ts';
import { parameter, parseWhole, readKeyed } from '../http/parameters.ts';

export const watcherParameter = {
  watcher: parameter(
    'the id of a watcher',
    parseWhole,
    Type.String({ description: 'Only what belongs to the watcher with this id.' }),
  ),
};

/** The watcher that the query names, or undefined for all. @throws Fault `not_found` */
export async function scopeOf(
  { database, clock }: Pick<ApiOptions, 'database' | 'clock'>,
  query: unknown,
): Promise<number | undefined> {
  const { watcher: id } = readKeyed(query, watcherParameter);
  if (id !== undefined && (await findWatcher(database, id, clock.now())) === undefined)
    throw new Fault('not_found', 'Watcher not found');
  return id;
}
