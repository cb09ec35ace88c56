/**
 * Checks the types and names of expressions once, when the configuration is loaded. A checked expression can then be
 * evaluated for every log without further checks.
 */
import { type Fraction, fractionFrom } from '../../core/fraction.ts';
import type { Hex } from '../../core/hex.ts';
import { type Span, TextError } from '../../core/text-error.ts';
import { type Arithmetic, type Comparison, type Expression, type Logic, parseExpression } from './parse.ts';

/** An integer is also a number. An address is `bytes20`. */
export type ValueType = 'integer' | 'number' | 'boolean' | `bytes${number}`;

export type Value = Fraction | boolean | Hex;

/** The names and tokens that an expression may use. */
export type Scope = {
  /** Completes the error `"x" is …`, as in "no argument of the event". */
  what: string;
  names: ReadonlyMap<string, ValueType>;
  /** Tokens by name. `usd` accepts only priced ones. */
  tokens: ReadonlyMap<string, 'priced' | 'unpriced'>;
};

type FunctionName = 'floor' | 'abs' | 'min' | 'max' | 'amount' | 'usd';

export type Checked =
  | { kind: 'constant'; value: Value }
  | { kind: 'name'; name: string }
  | { kind: 'call'; name: 'floor' | 'abs' | 'min' | 'max'; values: Checked[] }
  /** A function of an amount in the smallest units of a token. */
  | { kind: 'token'; name: 'amount' | 'usd'; units: Checked; token: string }
  | { kind: 'unary'; operator: '-' | '!'; operand: Checked }
  | { kind: 'binary'; operator: Arithmetic | Comparison | Logic; left: Checked; right: Checked };

export type CheckedExpression = {
  text: string;
  root: Checked;
  /** Tokens whose price the expression needs. */
  priced: ReadonlySet<string>;
};

type Typed = { type: ValueType; node: Checked };

const signatures: Record<FunctionName, string> = {
  floor: 'floor(number)',
  abs: 'abs(number)',
  min: 'min(number, number, …)',
  max: 'max(number, number, …)',
  amount: 'amount(units, token)',
  usd: 'usd(units, token)',
};
const BYTES_MAX = 32;

/**
 * Parses an expression and checks that it has the wanted type in this scope.
 * @throws TextError
 */
// oxlint-disable-next-line max-lines-per-function -- one short function for each kind of expression, which call each other and share scope and priced
export function checkExpression(
  text: string,
  scope: Scope,
  wanted: 'integer' | 'number' | 'boolean',
): CheckedExpression {
  const priced = new Set<string>();
  const parsed = parseExpression(text);
  const { type, node } = check(parsed);
  if (!isOf(type, wanted)) throw mismatch(parsed, wanted, type);
  return { text, root: node, priced };

  function check(expression: Expression): Typed {
    switch (expression.kind) {
      case 'number':
        return {
          type: expression.text.includes('.') ? 'number' : 'integer',
          node: { kind: 'constant', value: fractionFrom(expression.text) },
        };
      case 'hex':
        return checkHex(expression.text, expression);
      case 'boolean':
        return { type: 'boolean', node: { kind: 'constant', value: expression.value } };
      case 'name':
        return checkName(expression.name, expression);
      case 'call':
        return checkCall(expression.name, expression.values, expression);
      case 'unary': {
        const { operator } = expression;
        const operand = checkAs(expression.operand, operator === '!' ? 'boolean' : 'number');
        return { type: operand.type, node: { kind: 'unary', operator, operand: operand.node } };
      }
      case 'binary':
        return checkBinary(expression.operator, expression);
    }
  }

  function checkAs(expression: Expression, type: 'number' | 'boolean'): Typed {
    const typed = check(expression);
    if (!isOf(typed.type, type)) throw mismatch(expression, type, typed.type);
    return typed;
  }

  function checkName(name: string, span: Span): Typed {
    const known = scope.names.get(name);
    if (known === undefined) throw unknown(`"${name}" is ${scope.what}`, scope.names.keys(), span);
    return { type: known, node: { kind: 'name', name } };
  }

  function checkCall(name: string, values: Expression[], span: Span): Typed {
    switch (name) {
      case 'floor':
      case 'abs':
      case 'min':
      case 'max': {
        const isMany = name === 'min' || name === 'max';
        if (isMany ? values.length < 2 : values.length !== 1) throw wrongCount(name, span);
        const typed = values.map((value) => checkAs(value, 'number'));
        const isInteger = name === 'floor' || typed.every(({ type }) => type === 'integer');
        return {
          type: isInteger ? 'integer' : 'number',
          node: { kind: 'call', name, values: typed.map(({ node }) => node) },
        };
      }
      case 'amount':
      case 'usd': {
        const [unitsValue, tokenValue] = values;
        if (unitsValue === undefined || tokenValue === undefined || values.length > 2)
          throw wrongCount(name, span);
        const units = checkAs(unitsValue, 'number').node;
        const token = checkToken(tokenValue);
        if (name === 'usd' && scope.tokens.get(token) === 'unpriced')
          throw new TextError(
            `"${token}" has no price: give it one under tokens (usd) or prices`,
            tokenValue,
          );
        if (name === 'usd') priced.add(token);
        return { type: 'number', node: { kind: 'token', name, units, token } };
      }
      default:
        throw unknown(`"${name}" is not a function`, Object.keys(signatures), span);
    }
  }

  function checkToken(expression: Expression): string {
    const name = expression.kind === 'name' ? expression.name : undefined;
    if (name !== undefined && scope.tokens.has(name)) return name;
    const what = name === undefined ? 'a token is expected here' : `"${name}" is not a known token`;
    throw unknown(what, scope.tokens.keys(), expression);
  }

  function checkBinary(
    operator: Arithmetic | Comparison | Logic,
    { left, right, start, end }: Span & { left: Expression; right: Expression },
  ): Typed {
    const typeOfBoth = (type: 'number' | 'boolean'): [Typed, Typed] => [
      checkAs(left, type),
      checkAs(right, type),
    ];
    const binary = (type: ValueType, [one, other]: [Typed, Typed]): Typed => ({
      type,
      node: { kind: 'binary', operator, left: one.node, right: other.node },
    });
    switch (operator) {
      case '&&':
      case '||':
        return binary('boolean', typeOfBoth('boolean'));
      case '+':
      case '-':
      case '*': {
        const both = typeOfBoth('number');
        return binary(both.every(({ type }) => type === 'integer') ? 'integer' : 'number', both);
      }
      case '/':
        return binary('number', typeOfBoth('number'));
      case '<':
      case '<=':
      case '>':
      case '>=':
        return binary('boolean', typeOfBoth('number'));
      case '==':
      case '!=': {
        const both: [Typed, Typed] = [check(left), check(right)];
        const [one, other] = both;
        if (!isOf(one.type, other.type) && !isOf(other.type, one.type))
          throw new TextError(`${show(one.type)} is never equal to ${show(other.type)}`, { start, end });
        return binary('boolean', both);
      }
    }
  }
}

function checkHex(text: Hex, span: Span): Typed {
  const digits = text.length - 2;
  if (digits % 2 !== 0 || digits > BYTES_MAX * 2)
    throw new TextError(`must be an address or up to ${BYTES_MAX} bytes of two digits each`, span);
  return { type: `bytes${digits / 2}`, node: { kind: 'constant', value: text } };
}

/** An integer is accepted as a number, but not a number as an integer. */
function isOf(type: ValueType, wanted: ValueType): boolean {
  return type === wanted || (type === 'integer' && wanted === 'number');
}

function mismatch(span: Span, wanted: ValueType, type: ValueType): TextError {
  const hint = wanted === 'integer' && type === 'number' ? ': use floor(…)' : '';
  return new TextError(`must be ${show(wanted)}, and is ${show(type)}${hint}`, span);
}

function wrongCount(name: FunctionName, span: Span): TextError {
  return new TextError(`must be written ${signatures[name]}`, span);
}

function unknown(what: string, known: Iterable<string>, span: Span): TextError {
  return new TextError(`${what}: ${choiceOf([...known])}`, span);
}

/** The end of a message about a name that is none of these. */
export function choiceOf(names: readonly string[]): string {
  if (names.length === 0) return 'none is available';
  return names.length === 1 ? `use ${names[0]}` : `use one of ${names.join(', ')}`;
}

function show(type: ValueType): string {
  switch (type) {
    case 'integer':
      return 'an integer';
    case 'number':
      return 'a number';
    case 'boolean':
      return 'true or false';
    case 'bytes20':
      return 'an address';
    default:
      return type.replace(/^bytes(\d+)$/, '$1 bytes');
  }
}
