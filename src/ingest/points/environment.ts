/**
 * The values that expressions use at a log or at the end of a day. Notes each value that an expression reads. Pure.
 */
import { decimalText } from '../../core/decimal.ts';
import { type Fraction, floorTo, fractionFrom, fractionOf } from '../../core/fraction.ts';
import { type Address, zeroAddress } from '../../core/hex.ts';
import type { AbiValue } from '../../domain/event-signature.ts';
import type { CheckedExpression, Value } from '../../domain/expression/check.ts';
import type { Environment } from '../../domain/expression/evaluate.ts';
import type { Activity } from '../../domain/points/activity.ts';
import type { UserSource } from '../../domain/points/rules.ts';
import type { FedPrice, TokenInfo } from '../../domain/points/tokens.ts';
import type { Price } from '../../store/prices/prices.ts';

/** The price of an asset in force at a time, unless it is too old then. */
export type PriceAt = (asset: string, at: Date) => Price | undefined;

/** The values that an award was calculated from, for `points explain`. */
export type Inputs = Record<string, string>;

/** Points are truncated to this many decimals, as many as coins have. */
export const POINTS_DIGITS = 18;

type Known = { tokens: ReadonlyMap<string, TokenInfo>; priceAt: PriceAt; at: Date; inputs: Inputs };

/** The arguments of a log, and the tokens of its contract. */
export function logEnvironment(
  { listener, contract, values }: Activity,
  known: Omit<Known, 'tokens'>,
): Environment {
  const tokens = listener.tokens.get(contract) ?? new Map<string, TokenInfo>();
  return noting({ ...known, tokens }, (name) => {
    const index = listener.signature.parameters.findIndex((parameter) => parameter.name === name);
    return toValue(values[index]);
  });
}

/** One number, whatever its name. */
export function numberEnvironment(number: bigint, known: Known): Environment {
  return noting(known, () => fractionOf(number));
}

/** The prices of feeds that these expressions need with these tokens. */
export function fedPricesOf(
  expressions: readonly (CheckedExpression | undefined)[],
  tokens: ReadonlyMap<string, TokenInfo>,
): FedPrice[] {
  return expressions.flatMap((expression) =>
    [...(expression?.priced ?? [])].flatMap((token) => {
      const price = tokens.get(token)?.price;
      return price !== undefined && 'asset' in price ? [price] : [];
    }),
  );
}

/** The user of a log; undefined for the zero address, which stands for minting and burning. */
export function userOf(source: UserSource, { sender, values }: Activity): Address | undefined {
  const user = source.kind === 'sender' ? sender : values[source.index];
  return typeof user === 'string' && user !== zeroAddress ? user : undefined;
}

/** The value as text, as inputs hold it. */
export function textOf(value: Value): string {
  return typeof value === 'object' ? decimalText(floorTo(value, POINTS_DIGITS)) : String(value);
}

function noting({ tokens, priceAt, at, inputs }: Known, read: (name: string) => Value): Environment {
  const infoOf = (token: string): TokenInfo => {
    const info = tokens.get(token);
    if (info === undefined) throw new TypeError(`an expression was not checked: no token is named ${token}`);
    return info;
  };
  return {
    valueOf(name) {
      const value = read(name);
      inputs[`arg.${name}`] = textOf(value);
      return value;
    },
    decimalsOf: (token) => infoOf(token).decimals,
    usdOf(token): Fraction | undefined {
      const { price } = infoOf(token);
      if (price === undefined) return undefined;
      if ('usd' in price) {
        inputs[`price.${token}`] = textOf(price.usd);
        return price.usd;
      }
      const found = priceAt(price.asset, at);
      inputs[`price.${token}`] = found === undefined ? 'none' : decimalText(found.price);
      if (found === undefined) return undefined;
      inputs[`price_id.${token}`] = String(found.id);
      return fractionFrom(found.price);
    },
  };
}

function toValue(value: AbiValue | undefined): Value {
  if (value === undefined) throw new TypeError('an expression was not checked: no such argument');
  return typeof value === 'bigint' ? fractionOf(value) : value;
}
