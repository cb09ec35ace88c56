/**
 * What the checks report to each other; problems.ts turns it into what people read.
 */
import type { Span } from '../core/text-error.ts';
import type { Range } from './settings.ts';

/** Something wrong, by JSON pointer; shown where the value came from unless it says otherwise. */
export type Finding = {
  pointer: string;
  message: string;
  suggestion?: string;
  /** At the key instead of its value. */
  at?: 'key';
  /** At these characters of the file. */
  range?: Range;
  /** At these characters of the value, which is a text. */
  span?: Span;
  /** At this variable of the environment. */
  variable?: string;
};
