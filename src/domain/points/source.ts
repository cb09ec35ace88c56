/**
 * Compiles the source of a rule: its event, its contracts, and the expressions about them.
 */
import type { Address } from '../../core/hex.ts';
import { type Span, TextError } from '../../core/text-error.ts';
import {
  type AbiKind,
  type EventParameter,
  type EventSignature,
  parseEventSignature,
} from '../event-signature.ts';
import {
  type CheckedExpression,
  checkExpression,
  choiceOf,
  type Scope,
  type ValueType,
} from '../expression/check.ts';
import { parseExpression } from '../expression/parse.ts';
import type { Listener, UserSource } from './rules.ts';
import type { SourceText, Surroundings } from './text.ts';
import { findContract, type TokenInfo, tokensOf } from './tokens.ts';

/** Keys and indexes below `points` in the configuration. */
export type Path = readonly (string | number)[];

/** A problem of the text at this path. `span` has the characters that cause it, if they are known. */
export type RuleProblem = { path: Path; message: string; span?: Span };

/** A text and its place in the configuration. */
export type TextAt<Text> = { text: Text; path: Path };

export type Compiling = {
  surroundings: Surroundings;
  symbols: ReadonlyMap<string, TokenInfo>;
  problems: RuleProblem[];
};

export type Source = Pick<Listener, 'signature' | 'tokens'>;

/** Undefined if the event or one of the contracts has a problem. */
export function compileSource(
  { surroundings, symbols, problems }: Compiling,
  { text, path }: TextAt<SourceText>,
): Source | undefined {
  const eventPath = [...path, 'event'];
  const signature = attempt(problems, eventPath, () => parseEventSignature(text.event));
  const tokens = new Map<Address, ReadonlyMap<string, TokenInfo>>();
  let isWhole = true;
  for (const [index, contract] of text.contracts.entries()) {
    const found = findContract(surroundings, contract);
    if ('message' in found) {
      isWhole = false;
      problems.push({ path: [...path, 'contracts', index], message: found.message });
    } else tokens.set(found.address, new Map([...symbols, ...tokensOf(surroundings, found.address)]));
  }
  // Without all contracts, the tokens in expressions can't be checked.
  return isWhole && signature !== undefined ? { signature, tokens } : undefined;
}

export function compileUser(
  { problems }: Compiling,
  { parameters }: EventSignature,
  { text, path }: TextAt<string>,
): UserSource | undefined {
  if (text === 'tx.from') return { kind: 'sender' };
  const name = text.slice('arg:'.length);
  const index = parameters.findIndex((parameter) => parameter.name === name);
  if (parameters[index]?.kind === 'address') return { kind: 'argument', index };
  const addresses = parameters
    .filter((one) => one.kind === 'address' && one.name !== '')
    .map((one) => one.name);
  problems.push({
    path,
    message: `"${name}" is not an argument of the event with an address: ${choiceOf(addresses)}`,
  });
  return undefined;
}

/** The event's arguments, and the tokens that are known for all of the contracts. */
export function scopeOf({ symbols }: Compiling, { signature, tokens }: Source): Scope {
  const [first = symbols, ...others] = tokens.values();
  const shared = [...first].filter(([name]) => others.every((each) => each.has(name)));
  const isPriced = (name: string) => [first, ...others].every((each) => each.get(name)?.price !== undefined);
  return {
    what: 'not a readable argument of the event',
    names: new Map(signature.parameters.flatMap(namesOf)),
    tokens: new Map(shared.map(([name]) => [name, isPriced(name) ? 'priced' : 'unpriced'])),
  };
}

/** The checked expression. Undefined if there is no text, or if it has a problem, which is added to `problems`. */
export function compileExpression(
  { problems }: Compiling,
  scope: Scope,
  { text, path, type }: TextAt<string | undefined> & { type: 'integer' | 'number' | 'boolean' },
): CheckedExpression | undefined {
  return text === undefined ? undefined : attempt(problems, path, () => checkExpression(text, scope, type));
}

/** Reports only syntax errors, for expressions whose names can't be checked because their event or contracts have problems. */
export function checkForms({ problems }: Compiling, texts: readonly TextAt<string | undefined>[]): void {
  for (const { text, path } of texts)
    if (text !== undefined) attempt(problems, path, () => parseExpression(text));
}

function attempt<T>(problems: RuleProblem[], path: Path, work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof TextError)) throw error;
    problems.push({ path, message: error.message, span: error.span });
    return undefined;
  }
}

const typeOfKind: Record<Exclude<AbiKind, 'bytes'>, ValueType> = {
  integer: 'integer',
  boolean: 'boolean',
  address: 'bytes20',
};

function namesOf({ name, kind, bits }: EventParameter): [string, ValueType][] {
  if (kind === undefined || name === '') return [];
  return [[name, kind === 'bytes' ? `bytes${bits / 8}` : typeOfKind[kind]]];
}
