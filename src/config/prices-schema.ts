/**
 * The section `prices`: price feeds and their sources.
 */
import Type from 'typebox';
import { AddressText, DecimalText, HeaderText, HttpUrlText, JsonPathText } from './scalars.ts';

const closed = { additionalProperties: false } as const;

const MaxAgeSeconds = Type.Number({
  minimum: 1,
  maximum: 31_536_000,
  description:
    'Observations older than this are not used. The default is maxAgeSeconds of the feed, or if that is not set, 10 minutes or twice everySeconds, whichever is longer.',
});
const BaseUrl = Type.Optional(
  Type.With(HttpUrlText, { description: 'A mirror or proxy to use instead of the public API.' }),
);

const PriceSource = Type.Union([
  Type.Object(
    {
      type: Type.Literal('http'),
      url: Type.With(HttpUrlText, { description: 'The page to request.' }),
      path: Type.With(JsonPathText, { description: 'Path of the price in the response.' }),
      timePath: Type.Optional(
        Type.With(JsonPathText, {
          description:
            'Path of the time of the price: seconds or milliseconds since 1970, or ISO 8601. Without it, the price counts as new.',
        }),
      ),
      confPath: Type.Optional(
        Type.With(JsonPathText, { description: 'Path of the uncertainty of the price.' }),
      ),
      headers: Type.Optional(
        Type.Record(Type.String(), HeaderText, {
          description: 'Request headers, for example for an API key.',
        }),
      ),
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
        description: 'The coin.',
      }),
      apiKey: Type.With(HeaderText, { default: '', description: 'Your API key. Empty: none.' }),
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
        description: 'The market.',
      }),
      baseUrl: BaseUrl,
      maxAgeSeconds: Type.Optional(MaxAgeSeconds),
    },
    closed,
  ),
  Type.Object(
    {
      type: Type.Literal('chainlink'),
      address: Type.With(AddressText, { description: 'Contract of the feed, on this chain.' }),
      heartbeatSeconds: Type.Number({
        minimum: 1,
        maximum: 31_536_000,
        default: 3_600,
        description: 'The feed updates at least this often.',
      }),
    },
    closed,
  ),
  Type.Object(
    {
      type: Type.Literal('pair'),
      pair: Type.Integer({ minimum: 1, description: 'The `id` of a pair under `pairs`.' }),
      minutes: Type.Integer({
        minimum: 30,
        maximum: 1_440,
        default: 30,
        description: 'The period in minutes over which the price of the pair is averaged.',
      }),
      maxAgeSeconds: Type.Optional(MaxAgeSeconds),
    },
    closed,
  ),
  Type.Object(
    {
      type: Type.Literal('fixed'),
      price: Type.With(DecimalText, { description: 'The constant price in USD.' }),
    },
    closed,
  ),
]);

export const PriceFeed = Type.Object(
  {
    everySeconds: Type.Number({
      minimum: 1,
      maximum: 86_400,
      default: 30,
      description: 'Seconds between two rounds, in which all sources are asked.',
    }),
    maxAgeSeconds: Type.Optional(
      Type.Number({
        minimum: 1,
        maximum: 31_536_000,
        description:
          'Prices older than this are not used for prices, LP values, volumes and points. Without it, the newest price is used at any age.',
      }),
    ),
    sources: Type.Array(PriceSource, {
      minItems: 1,
      maxItems: 32,
      description: 'The price is the median of the sources that agree.',
    }),
  },
  closed,
);
