/**
 * How many streams may be open at once: of one watcher, of all watchers, and of the operator, who needs no slot of a watcher.
 */
import { OPERATOR } from './auth.ts';

/** Whether one more stream of the account may be opened beside the accounts of the open ones. */
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
  return ownCount < ownMax && (account === OPERATOR || watchersCount < watchersMax);
}
