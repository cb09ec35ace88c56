/**
 * Parses the JSON of requests, with a limit on its values, because parsing and checking them holds the event loop.
 */
import { messageOf } from '../../core/fault.ts';
import { createValueCounter } from '../../core/json-values.ts';
import { invalid } from './errors.ts';

/** The longest set, of 50,000 members with all fields in 8 MiB, has a value for each 40 bytes of that limit. */
const VALUE_BYTES_MIN = 32;

/**
 * The value of a text that may be as long as `bytesMax`.
 * @throws Fault `invalid` if it is not JSON, or has more than one value for each VALUE_BYTES_MIN of `bytesMax`.
 */
export function parseJson(text: string, bytesMax: number): unknown {
  const valuesMax = bytesMax / VALUE_BYTES_MIN;
  const { numbers, others } = createValueCounter()(Buffer.from(text));
  if (numbers + others > valuesMax)
    throw invalid('', `has more than ${valuesMax} values, which is the limit`);
  try {
    return JSON.parse(text);
  } catch (error) {
    throw invalid('', `is not JSON: ${messageOf(error)}`);
  }
}
