/**
 * Response headers that say whether the figures of pairs include all blocks up to now.
 */
import type { PublicAnswer } from '../http/public.ts';
import { STALE_HEADER } from './prices.ts';

const COMPLETE_HEADER = 'chainbell-volume-complete';
/** How long figures are cached that change with each block that is read. */
export const BEHIND_SECONDS = 5;
const isBehind = 'the newest stored block is older than 5 minutes and not known to be the head';

/** Describes the header of `withCompleteness`. `effect` says what the figures are meanwhile. */
export const completeHeader = (effect: string) => ({
  [COMPLETE_HEADER]: `\`false\` while blocks of the past 24 hours are still to be read, or ${isBehind}. Then ${effect}, and the response is cached for ${BEHIND_SECONDS} seconds.`,
});

/** The same for `withStaleness` and `withHistoryStaleness`. */
export const staleHeader = (effect: string) => ({
  [STALE_HEADER]: `\`true\` while ${isBehind}. Then ${effect}.`,
});

/** For volumes. Those whose blocks are still being read grow, so their response is cached only briefly. */
export const withCompleteness = (answer: PublicAnswer, isComplete: boolean): PublicAnswer => ({
  ...answer,
  headers: { [COMPLETE_HEADER]: String(isComplete) },
  ...(!isComplete && { cacheSecondsMax: BEHIND_SECONDS }),
});

/** For figures that follow from the states of pairs. */
export const withStaleness = (answer: PublicAnswer, isUpToDate: boolean): PublicAnswer => ({
  ...answer,
  headers: { [STALE_HEADER]: String(!isUpToDate) },
});

/** The same for a history, whose newest hours are missing meanwhile, so that it is cached only briefly. */
export const withHistoryStaleness = (answer: PublicAnswer, isUpToDate: boolean): PublicAnswer => ({
  ...withStaleness(answer, isUpToDate),
  ...(!isUpToDate && { cacheSecondsMax: BEHIND_SECONDS }),
});
