/**
 * Parses event signatures and decodes their logs (Contract ABI specification, "Events").
 * Decodes arguments of static elementary types. A signature may also have arguments of other types, which are skipped.
 */
import { keccak_256 } from '@noble/hashes/sha3';
import { decodeAddress, digitsAt, WORD_BYTES, WORD_DIGITS } from '../core/abi.ts';
import { fromBytes, type Hash, type Hex } from '../core/hex.ts';
import { TextError } from '../core/text-error.ts';

/** Integers; true and false; addresses and bytes as lower-case hex. */
export type AbiValue = bigint | boolean | Hex;

export type AbiKind = 'integer' | 'boolean' | 'address' | 'bytes';

export type EventParameter = {
  /** '' if it has none. */
  name: string;
  /** Canonical: `uint` is `uint256`. */
  type: string;
  indexed: boolean;
  /** Undefined for types that are not decoded. */
  kind: AbiKind | undefined;
  /** Index of the topic if `indexed`, otherwise of the word in the data. */
  place: number;
  bits: number;
};

export type EventSignature = {
  name: string;
  /** `Transfer(address,address,uint256)`. */
  canonical: string;
  topic: Hash;
  parameters: readonly EventParameter[];
  /** Topics of a log, including the signature's, and the minimum number of words in its data. */
  topicCount: number;
  wordCount: number;
};

export type RawLog = { topics: readonly Hash[]; data: Hex };

const SIGNATURE_LENGTH_MAX = 1_000;
/** The signature's topic and three indexed arguments. */
const TOPICS_MAX = 4;

/**
 * Parses a text such as `Transfer(address indexed from, address indexed to, uint256 value)`, with or without `event` before it.
 * @throws TextError for any other text, and for tuples and anonymous events, which are not supported.
 */
export function parseEventSignature(text: string): EventSignature {
  const all = { start: 0, end: text.length };
  if (text.length > SIGNATURE_LENGTH_MAX)
    throw new TextError(`must have at most ${SIGNATURE_LENGTH_MAX} characters`, { start: 0, end: 1 });
  const [head = '', name = ''] = /^\s*(?:event\s+)?([A-Za-z_$][\w$]*)\s*\(/.exec(text) ?? [];
  if (name === '')
    throw new TextError('must be an event such as Paid(address indexed user, uint256 amount)', all);
  const end = text.lastIndexOf(')');
  if (end < head.length)
    throw new TextError('must end with ")"', { start: text.length - 1, end: text.length });
  const rest = text.slice(end + 1).trim();
  if (rest !== '')
    throw new TextError(
      rest.startsWith('anonymous')
        ? 'anonymous events are not supported, because their logs have no topic of the event'
        : `"${rest}" is unexpected here`,
      { start: text.indexOf(rest, end), end: text.length },
    );
  const parameters = readParameters(text, head.length, end);
  const canonical = `${name}(${parameters.map(({ type }) => type).join()})`;
  const topicCount = 1 + parameters.filter(({ indexed }) => indexed).length;
  if (topicCount > TOPICS_MAX) throw new TextError('has more than 3 indexed arguments', all);
  return {
    name,
    canonical,
    topic: fromBytes(keccak_256(canonical)),
    parameters,
    topicCount,
    wordCount: parameters.reduce(
      (sum, parameter) => sum + (parameter.indexed ? 0 : wordsOf(parameter.type)),
      0,
    ),
  };
}

/** The arguments in the order of the signature. Undefined if the log's encoding doesn't match the signature. */
export function decodeEvent(signature: EventSignature, log: RawLog): (AbiValue | undefined)[] | undefined {
  const { topics, data } = log;
  if (topics.length !== signature.topicCount || data.length < 2 + signature.wordCount * WORD_DIGITS)
    return undefined;
  const values: (AbiValue | undefined)[] = [];
  for (const parameter of signature.parameters) {
    if (parameter.kind === undefined) {
      values.push(undefined);
      continue;
    }
    const { indexed, place } = parameter;
    const digits = indexed ? topics[place]?.slice(2) : digitsAt(data, place * WORD_BYTES);
    const value = digits === undefined ? undefined : decodeWord(parameter, digits);
    if (value === undefined) return undefined;
    values.push(value);
  }
  return values;
}

function readParameters(text: string, start: number, end: number): EventParameter[] {
  if (text.slice(start, end).trim() === '') return [];
  const parameters: EventParameter[] = [];
  let topics = 1;
  let words = 0;
  let from = start;
  for (const part of text.slice(start, end).split(',')) {
    const span = { start: from + part.length - part.trimStart().length, end: from + part.trimEnd().length };
    from += part.length + 1;
    if (/[()]|^\s*tuple\b/.test(part)) throw new TextError('tuples are not supported', span);
    const [, typeText = '', indexed, name = ''] =
      /^\s*([a-z0-9]+(?:\[\d*\])*)(?:\s+(indexed))?(?:\s+([A-Za-z_$][\w$]*))?\s*$/.exec(part) ?? [];
    if (typeText === '') throw new TextError('must be a type, "indexed" if it is indexed, and a name', span);
    const type = typeText.replace(/^(u?int)(?=\[|$)/, '$1256');
    const { kind, bits } = elementary(type) ?? {};
    if (!isKnown(type)) throw new TextError(`"${typeText}" is not an ABI type`, span);
    if (name !== '' && parameters.some((other) => other.name === name))
      throw new TextError(`two arguments are named "${name}"`, span);
    const isIndexed = indexed !== undefined;
    parameters.push({
      name,
      type,
      indexed: isIndexed,
      kind,
      place: isIndexed ? topics : words,
      bits: bits ?? 0,
    });
    if (isIndexed) topics += 1;
    else words += wordsOf(type);
  }
  return parameters;
}

/** The kind of a type that can be decoded, and the bits that it uses of its word. Undefined for other types. */
function elementary(type: string): { kind: AbiKind; bits: number } | undefined {
  if (type === 'address') return { kind: 'address', bits: 160 };
  if (type === 'bool') return { kind: 'boolean', bits: 1 };
  const [, form, size = ''] = /^(uint|int|bytes)([1-9]\d*)$/.exec(type) ?? [];
  const count = Number(size);
  if (form === 'bytes') return count <= 32 ? { kind: 'bytes', bits: count * 8 } : undefined;
  return form !== undefined && count <= 256 && count % 8 === 0 ? { kind: 'integer', bits: count } : undefined;
}

function isKnown(type: string): boolean {
  const base = type.replace(/(\[\d*\])+$/, '');
  return base === 'string' || base === 'bytes' || elementary(base) !== undefined;
}

/** Words of a type in the head of the data: one for each static value. A dynamic value has one word, its offset. */
function wordsOf(type: string): number {
  if (/^(string|bytes)(\[|$)|\[\]/.test(type)) return 1;
  return Array.from(type.matchAll(/\[(\d+)\]/g), ([, count]) => Number(count)).reduce(
    (words, count) => words * count,
    1,
  );
}

/** Undefined if bits outside the type are set, because no compiler emits such a word. */
function decodeWord({ kind, type, bits }: EventParameter, digits: string): AbiValue | undefined {
  if (kind === 'bytes') {
    const used = bits / 4;
    return /^0*$/.test(digits.slice(used)) ? `0x${digits.slice(0, used)}` : undefined;
  }
  if (kind === 'address') return decodeAddress(digits);
  const unsigned = BigInt(`0x${digits}`);
  if (kind === 'boolean') return unsigned > 1n ? undefined : unsigned === 1n;
  if (type.startsWith('uint')) return unsigned < 1n << BigInt(bits) ? unsigned : undefined;
  const value = BigInt.asIntN(256, unsigned);
  return value === BigInt.asIntN(bits, value) ? value : undefined;
}
