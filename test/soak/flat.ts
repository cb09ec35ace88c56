/**
 * Whether a value that was read again and again stays flat. It compares medians, because memory and tables go up and down with
 * garbage collection and vacuum.
 */
import { medianOf } from '../../bench/spread.ts';

export type Flatness = {
  what: string;
  unit: 'MiB' | 'KiB' | 'connections';
  samples: number;
  /** Medians of the second and the last third. */
  middle: number;
  last: number;
  max: number;
  /** Undefined: there are too few samples to say. */
  isFlat: boolean | undefined;
};

/** Fewer samples are mostly those of a process that has just started. */
const SAMPLES_MIN = 12;

/** Flat: the last third is above the second by no more than the slack, which is a number or a part of the second. */
export function judgeFlatness(
  { what, unit }: Pick<Flatness, 'what' | 'unit'>,
  samples: readonly number[],
  slack: { absolute: number; part: number },
): Flatness {
  const third = Math.floor(samples.length / 3);
  const middle = medianOf(samples.slice(third, 2 * third));
  const last = medianOf(samples.slice(2 * third));
  const isFlat =
    samples.length < SAMPLES_MIN ? undefined : last - middle <= Math.max(slack.absolute, middle * slack.part);
  return {
    ...{ what, unit, samples: samples.length, isFlat },
    ...{ middle: round(middle), last: round(last), max: round(Math.max(0, ...samples)) },
  };
}

const round = (value: number): number => Math.round(value * 10) / 10;
