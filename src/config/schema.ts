/**
 * Defines every key of the configuration once: name, type, limits, default and description. The validator,
 * the JSON Schema for editors, the environment variables and the `Config` type are derived from it.
 */
import Type, { type Static, type StaticDecode } from 'typebox';
import { DatabaseSection } from './database-schema.ts';
import { LimitsSection } from './limits-schema.ts';
import { Points } from './points-schema.ts';
import { PriceFeed } from './prices-schema.ts';
import {
  AddressText,
  AdminToken,
  CidrText,
  DecimalText,
  RpcUrlText,
  retentionText,
  SecretText,
  SymbolText,
  TransactionTypeText,
} from './scalars.ts';

const closed = { additionalProperties: false } as const;
/** A section of the file. It refuses unknown keys, and its defaults apply if the file leaves it out. */
const section = { ...closed, default: {} } as const;

const Host = Type.String({ minLength: 1, description: 'The address to listen on.' });
const Port = Type.Integer({
  minimum: 0,
  maximum: 65_535,
  description: 'The port to listen on. 0 chooses a free one.',
});
/** A uint256 has at most 78 digits, so more than 77 decimals would leave no digit before the point. */
const Decimals = Type.Integer({ minimum: 0, maximum: 77, description: 'Decimals of the token.' });
const BlockNumber = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });

const Coin = (symbol: string, description: string) =>
  Type.Object({ symbol: Type.With(SymbolText, { default: symbol, description }) }, section);

export const Native = Type.Object(
  {
    ...Coin('ETH', 'Symbol of the coin that pays for gas.').properties,
    wrapped: Type.Optional(
      Type.With(AddressText, {
        description: 'The wrapped native token. The default is token1 of every pair.',
      }),
    ),
  },
  { ...section, description: 'The coin that pays for gas (18 decimals).' },
);
export const Reward = Type.With(Coin('RWD', 'Symbol of the reward token.'), {
  description: 'The reward token of the ecosystem.',
});

const FILTER_RECORDS_MAX = 1_000_000_000;

const AddressFilter = Type.Object(
  {
    minRecords: Type.Union([Type.Literal('off'), Type.Integer({ minimum: 1, maximum: FILTER_RECORDS_MAX })], {
      title: `"off" (no filter) or a whole number from 1 to ${FILTER_RECORDS_MAX}`,
      default: 100_000,
      description: 'Watched addresses from which on the leading follower keeps the filter.',
    }),
  },
  {
    ...section,
    description:
      'Keeps 1.5 bytes per watched address in memory, so that a block asks the database only for addresses that may be watched.',
  },
);

const Chain = Type.Object(
  {
    id: Type.Integer({
      minimum: 1,
      maximum: Number.MAX_SAFE_INTEGER,
      description: 'The EIP-155 chain id. Every node must be on this chain.',
    }),
    rpc: Type.Refine(
      Type.Array(RpcUrlText, {
        minItems: 1,
        maxItems: 32,
        description:
          'Nodes in order of preference. A ws(s) URL adds notifications of new heads. With three or more HTTP nodes, one wrong node cannot make Chainbell follow a false block. Internal transfers are compared if at least two nodes can trace.',
      }),
      (urls) => urls.length === 0 || urls.some((url) => !/^wss?:/i.test(String(url))),
      () => 'must have at least one http or https URL: blocks are read over HTTP',
    ),
    native: Native,
    reward: Reward,
    startBlock: Type.Union([Type.Literal('latest'), BlockNumber], {
      title: '"latest" or a block number',
      default: 'latest',
      description: 'The first block that a new database follows.',
    }),
    confirmations: Type.Integer({
      minimum: 0,
      maximum: 100_000,
      default: 0,
      description:
        'Confirmations that a transfer needs before its webhook is sent. Indexing does not wait for them. A notification that is already held keeps the number that it was written with.',
    }),
    finalityDepth: Type.Integer({
      minimum: 1,
      maximum: 100_000,
      default: 64,
      description: 'Deepest reorg to follow if the node has no finalized tag.',
    }),
    internalTransfers: Type.Enum(['auto', 'off', 'required'], {
      default: 'auto',
      description:
        'Transfers inside contract calls, read from traces. auto: if a node supports traces. off: never. required: do not follow without traces.',
    }),
    quorum: Type.Union([Type.Literal('auto'), Type.Integer({ minimum: 1, maximum: 32 })], {
      title: '"auto" or a number of nodes',
      default: 'auto',
      description:
        'How many nodes must name the same block before it is followed. auto: half of the HTTP nodes, and at least two if there are several.',
    }),
    verify: Type.Enum(['auto', 'strict', 'off'], {
      default: 'auto',
      description:
        'Which proofs blocks must pass. auto: those that the chain honors. strict: all. off: only parent hashes and counts.',
    }),
    unprovedTypes: Type.Array(TransactionTypeText, {
      maxItems: 32,
      default: [],
      description:
        'Transaction types that auto accepts although Chainbell cannot prove them, in addition to those that it has observed. "unsigned" stands for transactions without a signature, or with one that the chain made up (r = s = 1).',
    }),
    addressFilter: AddressFilter,
  },
  closed,
);

const Webhooks = Type.Object(
  {
    retryMinutes: Type.Array(Type.Number({ exclusiveMinimum: 0, maximum: 10_080 }), {
      minItems: 1,
      maxItems: 100,
      default: [1, 3, 10, 15, 60],
      description:
        'Minutes to wait after the 1st, 2nd … failure. Fractions are allowed. The last one repeats forever.',
    }),
    allowHttp: Type.Boolean({ default: false, description: 'Development only: webhooks without TLS.' }),
    allowCidrs: Type.Array(CidrText, {
      maxItems: 100,
      default: [],
      description: 'Development only: non-public networks that webhooks may reach.',
    }),
    denyCidrs: Type.Array(CidrText, {
      maxItems: 100,
      default: [],
      description:
        'Public networks that webhooks must never reach, such as your own. It goes before `allowCidrs`.',
    }),
    ports: Type.Array(Type.Integer({ minimum: 1, maximum: 65_535 }), {
      minItems: 1,
      maxItems: 100,
      default: [443],
      description: 'Ports that a webhook URL may name.',
    }),
    caFile: Type.Union([Type.String({ minLength: 1 }), Type.Null()], {
      title: 'the path of a PEM file, or null',
      default: null,
      description: 'Development only: a PEM file with further certificate authorities.',
    }),
  },
  section,
);

export const Token = Type.Object(
  {
    address: Type.With(AddressText, { description: 'Contract of the token.' }),
    decimals: Decimals,
    usd: Type.Optional(
      Type.Number({ exclusiveMinimum: 0, description: 'Fixed value in USD: 1 for a stablecoin.' }),
    ),
  },
  closed,
);

export const Pair = Type.Object(
  {
    id: Type.Integer({
      minimum: 1,
      maximum: 2_147_483_647,
      description:
        'Your number for the pair, in the paths of the API. Pair 1 is that of the reward token. Never reuse a number.',
    }),
    name: Type.String({ minLength: 1, maxLength: 100, description: 'Shown by the API: TOKEN0/TOKEN1.' }),
    address: Type.With(AddressText, { description: 'Contract of the pair.' }),
    token0: Type.With(AddressText, { description: 'Its first token.' }),
    token1: Type.With(AddressText, { description: 'Its second token: the wrapped native token.' }),
    token0Decimals: Decimals,
    token1Decimals: Decimals,
    fee: Type.Integer({ minimum: 0, maximum: 1_000_000, description: 'Shown by the API as it is.' }),
    usdValueFrom: Type.Enum([0, 1], {
      description: 'The token whose amount determines the USD value of a swap.',
    }),
    rewardPid: Type.Integer({
      minimum: 0,
      maximum: 2_147_483_647,
      description: 'The farm pool of the LP token.',
    }),
  },
  closed,
);

const Supply = Type.Object(
  {
    initial: Type.With(DecimalText, { description: 'Supply at genesis, in whole coins.' }),
    multicall3: Type.With(AddressText, {
      default: '0xcA11bde05977b3631167028862bE2a173976CA11',
      description: 'The Multicall3 contract, which reads all balances at one block.',
    }),
    maxAgeSeconds: Type.Number({
      minimum: 120,
      maximum: 31_536_000,
      default: 3_600,
      description: 'How long the last good reading is served while no node answers.',
    }),
    locked: Type.Object(
      {
        validatorsStaking: Type.Optional(
          Type.With(AddressText, { description: 'Staking contract of the validators.' }),
        ),
        vesting: Type.Record(Type.String(), AddressText, {
          default: {},
          description: 'Vesting contracts by label.',
        }),
      },
      section,
    ),
  },
  closed,
);
/** The schema of the file, with every default and limit. */
export const ConfigSchema = Type.Object(
  {
    chain: Chain,
    database: DatabaseSection,
    dataDir: Type.String({
      minLength: 1,
      default: './.chainbell',
      description: 'Folder of the embedded database and its secret, relative to this file.',
    }),
    secret: Type.With(SecretText, {
      default: '',
      description:
        'Encrypts API keys and signing secrets: 32 bytes in base64. With the embedded database, it is generated in dataDir.',
    }),
    formerSecrets: Type.Array(SecretText, {
      maxItems: 10,
      default: [],
      description:
        'Secrets that are accepted in addition to `secret`, so that the old and the new one both work during a rotation. Remove them after `keys rekey` is done.',
    }),
    http: Type.Object(
      {
        host: Type.With(Host, { default: '127.0.0.1' }),
        port: Type.With(Port, { default: 8080 }),
        adminToken: AdminToken,
        console: Type.Boolean({ default: true, description: 'The web page at /console is served.' }),
      },
      { ...section, description: 'The API.' },
    ),
    metrics: Type.Object(
      { host: Type.With(Host, { default: '127.0.0.1' }), port: Type.With(Port, { default: 9464 }) },
      { ...section, description: 'Prometheus metrics.' },
    ),
    webhooks: Webhooks,
    limits: LimitsSection,
    tokens: Type.Record(Type.String(), Token, {
      default: {},
      description: 'Tokens by symbol. The console shows their amounts in units of the token.',
    }),
    pairs: Type.Array(Pair, { maxItems: 1_000, default: [], description: 'Swap pairs.' }),
    prices: Type.Object(
      {
        native: Type.Optional(PriceFeed),
        // In a record only entries that have a default get those of their keys.
        tokens: Type.Record(Type.String(), Type.With(PriceFeed, { default: {} }), {
          default: {},
          description: 'Feeds of further tokens, by symbol.',
        }),
      },
      section,
    ),
    supply: Type.Optional(Supply),
    points: Points,
    stopSeconds: Type.Number({
      minimum: 3,
      maximum: 600,
      default: 15,
      description:
        'How long a stop may take. Attempts and requests under way end in this time, at most 10 s each; what remains is left to other processes.',
    }),
    retention: Type.Object(
      {
        // Shorter than the retry schedule's first hours, the log would not show why a webhook is late.
        attempts: retentionText('1h', {
          default: '30d',
          description:
            'How long delivery attempts are kept. Deleted in steps of a tenth of this, in whole days (UTC).',
        }),
        notifications: retentionText('1d', {
          default: '90d',
          description:
            'How long finished notifications are kept after their creation. Deleted in steps of a tenth of this, in whole days (UTC). Waiting ones are always kept.',
        }),
        observations: retentionText('1h', {
          default: '7d',
          description: 'How long the answers of price sources are kept. Prices are always kept.',
        }),
        // At least two days, so that pruning never removes data of the last 24 hours that the API reports.
        swaps: retentionText('2d', {
          default: '7d',
          description: 'How long swaps are kept. Their sums are kept for pairHistory.',
        }),
        pairHistory: retentionText('2d', {
          default: '400d',
          description: 'How long hourly volumes and prices of pairs are kept. The newest is always kept.',
        }),
      },
      section,
    ),
    log: Type.Object(
      {
        level: Type.Enum(['trace', 'debug', 'info', 'warn', 'error'], {
          default: 'info',
          description: 'The least important events to log.',
        }),
        format: Type.Enum(['auto', 'json', 'pretty'], {
          default: 'auto',
          description: 'auto: pretty on a terminal, JSON lines elsewhere.',
        }),
      },
      section,
    ),
  },
  { ...closed, title: 'a Chainbell configuration' },
);

/** The values in the form of the file, with all defaults. */
export type ConfigText = Static<typeof ConfigSchema>;

type Decoded = StaticDecode<typeof ConfigSchema>;

/**
 * A loaded configuration: complete, valid, frozen. Addresses are lower case, paths absolute, and durations in
 * milliseconds. `database.url` is '' for the embedded database; `secret` may be '' only then.
 */
export type Config = Omit<Decoded, 'retention'> & {
  retention: Record<`${keyof Decoded['retention']}Ms`, number>;
};
