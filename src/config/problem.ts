/**
 * A problem as the checks report it. problem-report.ts turns problems into the text that people read.
 */
import type { Span } from '../core/text-error.ts';
import type { Range } from './value-origins.ts';

/** A problem at a JSON pointer. The report shows it where the value came from, unless a field below says otherwise. */
export type PointerProblem = {
  pointer: string;
  message: string;
  suggestion?: string;
  /** Show it at the key instead of the value. */
  at?: 'key';
  /** Show it at these characters of the file. */
  range?: Range;
  /** Show it at these characters of the value, which is a text. */
  span?: Span;
  /** Show it at this environment variable. */
  variable?: string;
};
