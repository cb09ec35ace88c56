/** Seconds from `then` to `now`; 0 for a time that is still to come. */
export const ageSeconds = (then: Date, now: Date): number =>
  Math.max(0, (now.getTime() - then.getTime()) / 1000);
