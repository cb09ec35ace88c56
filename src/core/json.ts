/**
 * Parses and writes JSON with exact integers of any size. `amount` is a JSON number of up to 78 digits (spec 2.7).
 */

declare global {
  interface JSON {
    /** ES2026: a value that JSON.stringify writes as exactly this text. */
    rawJSON(text: string): { rawJSON: string };
  }
}

/** A value that `JSON.stringify` writes as the exact integer. */
export function exactInteger(value: bigint): { rawJSON: string } {
  return JSON.rawJSON(value.toString());
}

type Reviver = (key: string, value: unknown, context: { source?: string }) => unknown;

/**
 * Parses JSON. Integers that a double can't hold become bigint. All other values are as in JSON.parse.
 * @throws SyntaxError as JSON.parse does.
 */
export function parseExact(text: string): unknown {
  const revive: Reviver = (_key, value, { source }) =>
    typeof value === 'number' &&
    source !== undefined &&
    /^-?\d+$/.test(source) &&
    !Number.isSafeInteger(value)
      ? BigInt(source)
      : value;
  return parseWith(text, revive);
}

/**
 * Parses JSON with decimal numbers of any length. Each number becomes the text in which it was written.
 * @throws SyntaxError as JSON.parse does; RangeError for a text that is nested too deeply.
 */
export function parseDecimals(text: string): unknown {
  return parseWith(text, (_key, value, { source }) =>
    typeof value === 'number' && source !== undefined ? source : value,
  );
}

// TypeScript's library types lack the third argument of a reviver, which Node 24 passes (ES2026).
const parseWith = (text: string, revive: Reviver): unknown =>
  JSON.parse(text, revive as (key: string, value: unknown) => unknown);

/** Whether the value is a JSON object, and not null or an array. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The value as JSON. Undefined for one that JSON.parse reads, but that is nested too deeply for JSON.stringify. */
export function jsonText(value: unknown): string | undefined {
  try {
    return JSON.stringify(value);
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}
