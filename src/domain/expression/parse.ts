/**
 * Parses the expressions of point rules, such as `usd(amount0In + amount0Out, token0) >= 1 && to != sender`, into a tree.
 *
 *   expression  = and { "||" and }                    and      = comparison { "&&" comparison }
 *   comparison  = sum [ ("==" | "!=" | "<" | "<=" | ">" | ">=") sum ]
 *   sum         = product { ("+" | "-") product }     product  = unary { ("*" | "/") unary }
 *   unary       = ("-" | "!") unary | primary
 *   primary     = number | hex | "true" | "false" | name | name "(" [ expression { "," expression } ] ")" | "(" expression ")"
 */
import { type Span, TextError } from '../../core/text-error.ts';

export const comparisons = ['==', '!=', '<', '<=', '>', '>='] as const;
export type Comparison = (typeof comparisons)[number];
export type Arithmetic = '+' | '-' | '*' | '/';
export type Logic = '&&' | '||';

export type Expression = Span &
  (
    | { kind: 'number'; text: string }
    /** An address or bytes, lower case. */
    | { kind: 'hex'; text: `0x${string}` }
    | { kind: 'boolean'; value: boolean }
    | { kind: 'name'; name: string }
    | { kind: 'call'; name: string; values: Expression[] }
    | { kind: 'unary'; operator: '-' | '!'; operand: Expression }
    | { kind: 'binary'; operator: Arithmetic | Comparison | Logic; left: Expression; right: Expression }
  );

/** Enough for any readable rule. It also bounds the size of all computed numbers. */
const TEXT_LENGTH_MAX = 1_000;
/** Nesting of parentheses, calls and signs. Bounds the recursion. */
const DEPTH_MAX = 32;
/** A uint256 has at most 78 digits. */
const NUMBER_LENGTH_MAX = 80;

type Token = Span & { kind: 'number' | 'hex' | 'name' | 'symbol' | 'end'; text: string };

/** @throws TextError */
export function parseExpression(text: string): Expression {
  const { peek, take, takeSymbol, expect } = createTokenCursor(text);
  let depth = 0;

  const expression = parseOr();
  const rest = peek();
  if (rest.kind !== 'end') throw new TextError(`${show(rest)} is unexpected here`, rest);
  return expression;

  function parseChain(
    operators: readonly (Arithmetic | Logic)[],
    parseOperand: () => Expression,
  ): Expression {
    let left = parseOperand();
    for (;;) {
      const operator = takeSymbol(...operators);
      if (operator === undefined) return left;
      const right = parseOperand();
      left = { kind: 'binary', operator, left, right, start: left.start, end: right.end };
    }
  }

  function parseOr(): Expression {
    return parseChain(['||'], () => parseChain(['&&'], parseComparison));
  }

  function parseComparison(): Expression {
    const left = parseSum();
    const operator = takeSymbol(...comparisons);
    if (operator === undefined) return left;
    const right = parseSum();
    const next = peek();
    if (next.kind === 'symbol' && comparisons.some((one) => one === next.text))
      throw new TextError('comparisons cannot be chained: combine them with &&', next);
    return { kind: 'binary', operator, left, right, start: left.start, end: right.end };
  }

  function parseSum(): Expression {
    return parseChain(['+', '-'], () => parseChain(['*', '/'], parseUnary));
  }

  /** Every nested expression passes through here, so the depth is counted here. */
  function parseUnary(): Expression {
    depth += 1;
    if (depth > DEPTH_MAX) throw new TextError(`is nested more than ${DEPTH_MAX} deep`, peek());
    const { start } = peek();
    const operator = takeSymbol('-', '!');
    const operand = operator === undefined ? parsePrimary() : parseUnary();
    depth -= 1;
    return operator === undefined ? operand : { kind: 'unary', operator, operand, start, end: operand.end };
  }

  function parsePrimary(): Expression {
    const token = take();
    const { start, end } = token;
    if (token.kind === 'number') return { kind: 'number', text: token.text, start, end };
    if (token.kind === 'hex')
      return { kind: 'hex', text: `0x${token.text.slice(2).toLowerCase()}`, start, end };
    if (token.kind === 'name') return parseName(token);
    if (token.kind !== 'symbol' || token.text !== '(')
      throw new TextError(`a value is expected here, not ${show(token)}`, token);
    const inside = parseOr();
    const closing = expect(')', 'to close the parenthesis');
    return { ...inside, start, end: closing.end };
  }

  function parseName({ text: name, start, end }: Token): Expression {
    if (name === 'true' || name === 'false') return { kind: 'boolean', value: name === 'true', start, end };
    if (takeSymbol('(') === undefined) return { kind: 'name', name, start, end };
    const values: Expression[] = [];
    const isEmpty = peek().kind === 'symbol' && peek().text === ')';
    if (!isEmpty) {
      do values.push(parseOr());
      while (takeSymbol(',') !== undefined);
    }
    const closing = expect(')', `to end the values of ${name}`);
    return { kind: 'call', name, values, start, end: closing.end };
  }
}

/** Moves through the tokens of a text; past the last one, every token is the end. */
function createTokenCursor(text: string) {
  const tokens = readTokens(text);
  let position = 0;

  function peek(): Token {
    return tokens[position] ?? { kind: 'end', text: '', start: text.length, end: text.length };
  }

  function take(): Token {
    const token = peek();
    position += 1;
    return token;
  }

  function takeSymbol<Symbol extends string>(...symbols: readonly Symbol[]): Symbol | undefined {
    const token = peek();
    const found = token.kind === 'symbol' ? symbols.find((symbol) => symbol === token.text) : undefined;
    if (found !== undefined) position += 1;
    return found;
  }

  function expect(symbol: string, why: string): Token {
    const token = take();
    if (token.kind !== 'symbol' || token.text !== symbol)
      throw new TextError(`"${symbol}" is expected here ${why}, not ${show(token)}`, token);
    return token;
  }

  return { peek, take, takeSymbol, expect };
}

const TOKEN =
  /\s*(?:(?<hex>0[xX][0-9a-fA-F]+)|(?<number>\d+(?:\.\d+)?)|(?<name>[A-Za-z_$][\w$]*)|(?<symbol>\|\||&&|[=!<>]=|[-+*/<>!(),]))/y;

function readTokens(text: string): Token[] {
  if (text.length > TEXT_LENGTH_MAX)
    throw new TextError(`must have at most ${TEXT_LENGTH_MAX} characters`, { start: 0, end: 1 });
  const tokens: Token[] = [];
  const end = text.trimEnd().length;
  const pattern = new RegExp(TOKEN);
  while (pattern.lastIndex < end) {
    const from = pattern.lastIndex;
    const { groups = {} } = pattern.exec(text) ?? {};
    const found = Object.entries(groups).find(([, part]) => part !== undefined);
    if (found === undefined) throw strangeCharacter(text, from);
    const [kind, part] = found;
    const token = {
      kind: kind as Token['kind'],
      text: part,
      start: pattern.lastIndex - part.length,
      end: pattern.lastIndex,
    };
    if (kind === 'number' && part.length > NUMBER_LENGTH_MAX)
      throw new TextError(`a number has at most ${NUMBER_LENGTH_MAX} digits`, token);
    const next = text.charAt(token.end);
    if ((kind === 'number' || kind === 'hex') && /[\w.$]/.test(next))
      throw new TextError(`"${part}${next}" is not a number`, { start: token.start, end: token.end + 1 });
    tokens.push(token);
  }
  return tokens;
}

function strangeCharacter(text: string, from: number): TextError {
  const start = from + (text.slice(from).length - text.slice(from).trimStart().length);
  const character = String.fromCodePoint(text.codePointAt(start) ?? 0);
  const span = { start, end: start + character.length };
  const meant = { '=': '==', '&': '&&', '|': '||' }[character];
  const hint = meant === undefined ? '' : `: did you mean ${meant}?`;
  return new TextError(`"${character}" is unexpected here${hint}`, span);
}

const show = ({ kind, text }: Token): string => (kind === 'end' ? 'the end' : `"${text}"`);
