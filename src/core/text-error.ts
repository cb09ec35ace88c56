/**
 * Defines the error for a short text of the configuration (an expression or an event signature), with its position.
 */

/** A range of characters in a text, counted from 0. `end` is exclusive. */
export type Span = { start: number; end: number };

/** The only error that the parsers and checks of such texts throw. */
export class TextError extends Error {
  override readonly name = 'TextError';
  readonly span: Span;

  constructor(message: string, { start, end }: Span) {
    super(message);
    this.span = { start, end };
  }
}
