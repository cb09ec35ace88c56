/**
 * Evaluates checked expressions exactly, in fractions.
 */
import {
  add,
  compare,
  divide,
  type Fraction,
  floor,
  fractionOf,
  greatest,
  least,
  multiply,
  negate,
  subtract,
  zero,
} from '../../core/fraction.ts';
import type { Checked, CheckedExpression, Value } from './check.ts';
import type { Arithmetic, Comparison, Logic } from './parse.ts';

/** The values of the names in an expression. Only those that affect the result are requested. */
export type Environment = {
  valueOf(name: string): Value;
  decimalsOf(token: string): number;
  /** USD for one whole token. Undefined if no price was in force. */
  usdOf(token: string): Fraction | undefined;
};

/** The number. Undefined if it divides by zero. A token without a price counts as worth 0 (spec 4.3). */
export function evaluateNumber({ root }: CheckedExpression, environment: Environment): Fraction | undefined {
  const value = evaluate(root, environment);
  return value === undefined ? undefined : asNumber(value);
}

/** The truth value. Undefined if it divides by zero. */
export function evaluateBoolean({ root }: CheckedExpression, environment: Environment): boolean | undefined {
  const value = evaluate(root, environment);
  return value === undefined ? undefined : asBoolean(value);
}

function evaluate(node: Checked, environment: Environment): Value | undefined {
  switch (node.kind) {
    case 'constant':
      return node.value;
    case 'name':
      return environment.valueOf(node.name);
    case 'unary': {
      const value = evaluate(node.operand, environment);
      if (value === undefined) return undefined;
      return node.operator === '!' ? !asBoolean(value) : negate(asNumber(value));
    }
    case 'binary':
      return evaluateBinary(node, environment);
    case 'call':
      return evaluateCall(node, environment);
    case 'token':
      return evaluateToken(node, environment);
  }
}

function evaluateToken(node: Checked & { kind: 'token' }, environment: Environment): Value | undefined {
  const units = evaluate(node.units, environment);
  if (units === undefined) return undefined;
  const decimals = environment.decimalsOf(node.token);
  const amount = multiply(asNumber(units), { numerator: 1n, denominator: 10n ** BigInt(decimals) });
  return node.name === 'amount' ? amount : multiply(amount, environment.usdOf(node.token) ?? zero);
}

function evaluateCall(node: Checked & { kind: 'call' }, environment: Environment): Value | undefined {
  const numbers: Fraction[] = [];
  for (const each of node.values) {
    const value = evaluate(each, environment);
    if (value === undefined) return undefined;
    numbers.push(asNumber(value));
  }
  const [first = zero, ...others] = numbers;
  switch (node.name) {
    case 'floor':
      return fractionOf(floor(first));
    case 'abs':
      return first.numerator < 0n ? negate(first) : first;
    case 'min':
      return others.reduce(least, first);
    case 'max':
      return others.reduce(greatest, first);
  }
}

function evaluateBinary(
  { operator, left, right }: { operator: Arithmetic | Comparison | Logic; left: Checked; right: Checked },
  environment: Environment,
): Value | undefined {
  const one = evaluate(left, environment);
  if (one === undefined) return undefined;
  // If the left side decides, skip the right side, because it may divide by zero.
  if (operator === '&&' && !asBoolean(one)) return false;
  if (operator === '||' && asBoolean(one)) return true;
  const other = evaluate(right, environment);
  if (other === undefined) return undefined;
  switch (operator) {
    case '&&':
    case '||':
      return other;
    case '==':
      return isEqual(one, other);
    case '!=':
      return !isEqual(one, other);
    case '+':
      return add(asNumber(one), asNumber(other));
    case '-':
      return subtract(asNumber(one), asNumber(other));
    case '*':
      return multiply(asNumber(one), asNumber(other));
    case '/':
      return divide(asNumber(one), asNumber(other));
    case '<':
      return compare(asNumber(one), asNumber(other)) < 0;
    case '<=':
      return compare(asNumber(one), asNumber(other)) <= 0;
    case '>':
      return compare(asNumber(one), asNumber(other)) > 0;
    case '>=':
      return compare(asNumber(one), asNumber(other)) >= 0;
  }
}

function isEqual(one: Value, other: Value): boolean {
  return typeof one === 'object' && typeof other === 'object' ? compare(one, other) === 0 : one === other;
}

function asNumber(value: Value): Fraction {
  if (typeof value !== 'object') throw new TypeError('an expression was not checked: not a number');
  return value;
}

function asBoolean(value: Value): boolean {
  if (typeof value !== 'boolean') throw new TypeError('an expression was not checked: not true or false');
  return value;
}
