/**
 * Parses a record of a bulk request. It is validated like a single request with the same change (spec 4.5), except that unknown
 * fields are refused.
 */
import { Type } from 'typebox';
import { URL_CHARACTERS_MAX, type WebhookPolicy } from '../../domain/webhook-url.ts';
import type { Change } from '../../store/watchers/watched-bulk.ts';
import { requireKnown, strict } from '../http/body-names.ts';
import { invalid } from '../http/errors.ts';
import { parseJson } from '../http/json-body.ts';
import { LINE_CHARACTERS_MAX, type Line } from '../http/json-lines.ts';
import { createParser } from '../http/parser.ts';
import { Create, Patch, parseId, parseNew, parsePatch } from './watched-addresses.ts';

/** The fields of a record of any operation. */
export const ChangeRecord = Type.Object(
  {
    operation: Type.Optional(Type.Enum(['create', 'update', 'delete'])),
    id: Type.Optional(
      Type.String({ description: 'Of an update or a deletion. A record to create takes none.' }),
    ),
    ...Patch.properties,
  },
  strict,
);
const parseOperation = createParser(Type.Object({ operation: Type.Optional(Type.String()) }));
const parseCreate = createParser(Create);
const parseUpdate = createParser(Type.Object({ id: Type.String(), ...Patch.properties }));
const parseDelete = createParser(Type.Object({ id: Type.String() }));

/** The change in a record, by default `create`. @throws Fault like the single request */
export function parseChange(value: unknown, policy: WebhookPolicy): Change {
  const { operation = 'create' } = parseOperation(value);
  requireKnown(ChangeRecord, value);
  switch (operation) {
    case 'create':
      // Some clients write a missing field as null.
      if ((Object(value).id ?? undefined) !== undefined)
        throw invalid('/id', 'is only for a record with operation update or delete');
      return { operation, record: parseNew(parseCreate(value), policy) };
    case 'update': {
      const body = parseUpdate(value);
      return { operation, patch: parsePatch(body, policy), id: parseId(body.id) };
    }
    case 'delete':
      return { operation, id: parseId(parseDelete(value).id) };
    default:
      throw invalid('/operation', 'must be create, update or delete');
  }
}

/** A record as JSON takes up to this much without its URL. */
const RECORD_BYTES = 300;

/** At most how many bytes of JSON the records after these changes take. */
export function changedBytes(changes: readonly Change[]): number {
  let bytes = 0;
  for (const change of changes) {
    const fields =
      change.operation === 'create' ? change.record : change.operation === 'update' ? change.patch : {};
    bytes += RECORD_BYTES + (fields.webhookUrl?.length ?? URL_CHARACTERS_MAX);
  }
  return bytes;
}

/** The change in a line of JSON. @throws Fault like `parseChange` */
export function parseLine(line: Line, policy: WebhookPolicy): Change {
  if (line === undefined)
    throw invalid('', `the line must be at most ${LINE_CHARACTERS_MAX} characters long`);
  // Bytes that are not UTF-8 become this character.
  if (line.includes('\uFFFD')) throw invalid('', 'is not UTF-8, or has the character U+FFFD');
  return parseChange(parseJson(line, LINE_CHARACTERS_MAX), policy);
}
