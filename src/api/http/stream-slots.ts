/**
 * How many streams may be open at once: of one watcher, of all watchers, and of the operator, who needs no slot of a watcher.
 */
import { OPERATOR } from './auth.ts';

/**
 * Whether one more stream of the account may be opened beside the accounts of the open ones. A watcher's first stream may exceed
 * `watchersMax` up to twice, so that a few watchers with many streams don't lock out the others.
 */
export function hasFreeSlot(
  open: Iterable<number>,
  account: number,
  { ownMax, watchersMax }: { ownMax: number; watchersMax: number },
): boolean {
  let ownCount = 0;
  let watchersCount = 0;
  for (const one of open) {
    if (one === account) ownCount += 1;
    if (one !== OPERATOR) watchersCount += 1;
  }
  const max = ownCount === 0 ? 2 * watchersMax : watchersMax;
  return ownCount < ownMax && (account === OPERATOR || watchersCount < max);
}
