/**
 * The error of a short text in the configuration (an expression, an event's signature), with its position.
 */

/** Characters of a text, from 0; `end` is the one after the last. */
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
