/**
 * Price feeds and their sources.
 */
import Type from 'typebox';
import { AddressText, DecimalText, HeaderText, HttpUrlText, JsonPathText } from './scalars.ts';

const closed = { additionalProperties: false } as const;

const MaxAgeSeconds = Type.Number({
  minimum: 1,
  maximum: 31_536_000,
  description:
    'An observation older than this is not used. Unless given: maxAgeSeconds of the feed, or else 10 minutes or two rounds, whichever is longer.',
});
const BaseUrl = Type.Optional(
  Type.With(HttpUrlText, { description: 'Instead of the public API: a mirror or a proxy.' }),
);

const PriceSource = Type.Union([
  Type.Object(
    {
      type: Type.Literal('http'),
      url: HttpUrlText,
      path: Type.With(JsonPathText, { description: 'Where the price is in the answer.' }),
      timePath: Type.Optional(
        Type.With(JsonPathText, {
          description: 'Where its time is: seconds or milliseconds since 1970, or ISO 8601; else it is new.',
        }),
      ),
      confPath: Type.Optional(
        Type.With(JsonPathText, { description: 'Where it says by how much the price may be wrong.' }),
      ),
      headers: Type.Optional(Type.Record(Type.String(), HeaderText, { description: 'Such as an API key.' })),
      maxAgeSeconds: Type.Optional(MaxAgeSeconds),
    },
    closed,
  ),
  Type.Object(
    {
      type: Type.Literal('coingecko'),
      id: Type.String({
        title: 'the id of a coin at CoinGecko such as ethereum',
        pattern: '^[\\w.-]{1,100}$',
      }),
      apiKey: Type.With(HeaderText, { default: '' }),
      plan: Type.Enum(['demo', 'pro'], { default: 'demo', description: 'The plan of apiKey.' }),
      baseUrl: BaseUrl,
      maxAgeSeconds: Type.Optional(MaxAgeSeconds),
    },
    closed,
  ),
  Type.Object(
    {
      type: Type.Literal('binance'),
      symbol: Type.String({
        title: 'a symbol of Binance such as ETHUSDT',
        pattern: '^[A-Z0-9._-]{1,40}$',
      }),
      baseUrl: BaseUrl,
      maxAgeSeconds: Type.Optional(MaxAgeSeconds),
    },
    closed,
  ),
  Type.Object(
    {
      type: Type.Literal('chainlink'),
      address: AddressText,
      heartbeatSeconds: Type.Number({
        minimum: 1,
        maximum: 31_536_000,
        default: 3_600,
        description: 'The feed says something new at least this often.',
      }),
    },
    closed,
  ),
  Type.Object(
    {
      type: Type.Literal('pair'),
      pair: Type.Integer({ minimum: 1 }),
      minutes: Type.Integer({
        minimum: 30,
        maximum: 1_440,
        default: 30,
        description: 'The time over which its price is averaged.',
      }),
      maxAgeSeconds: Type.Optional(MaxAgeSeconds),
    },
    closed,
  ),
  Type.Object({ type: Type.Literal('fixed'), price: DecimalText }, closed),
]);

export const PriceFeed = Type.Object(
  {
    everySeconds: Type.Number({ minimum: 1, maximum: 86_400, default: 30 }),
    maxAgeSeconds: Type.Optional(
      Type.Number({
        minimum: 1,
        maximum: 31_536_000,
        description:
          'A price older than this does not count in prices, LP values and volumes. Unless given, the newest price counts, however old it is.',
      }),
    ),
    sources: Type.Array(PriceSource, { minItems: 1, maxItems: 32 }),
  },
  closed,
);
