/**
 * The section `points` of the configuration file. domain/points defines what the rules mean.
 */
import Type from 'typebox';
import { MOVEMENTS_MAX } from '../domain/points/rules.ts';
import { parseDay } from '../domain/points/window.ts';
import { AddressText, CategoryText, ContractText } from './scalars.ts';

const closed = { additionalProperties: false } as const;

const DAY_TITLE = 'a day such as 2026-01-31';
const DayText = Type.Refine(
  Type.String({ title: DAY_TITLE }),
  (text) => parseDay(text) !== undefined,
  () => `must be ${DAY_TITLE}`,
);
const Mark = Type.Union([Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }), DayText], {
  title: 'a day such as 2026-01-31, or a block number',
});
const ExpressionText = Type.String({ title: 'an expression in quotes', minLength: 1 });
const EventText = Type.String({
  title: 'an event such as "Paid(address indexed user, uint256 amount)"',
  minLength: 1,
});
const ArgumentText = Type.String({
  title: 'arg: followed by the name of an argument',
  pattern: '^arg:[A-Za-z_$][\\w$]*$',
});
const UserText = Type.String({
  title: 'tx.from, or arg: followed by the name of an argument',
  pattern: '^(tx\\.from|arg:[A-Za-z_$][\\w$]*)$',
});

const source = {
  event: Type.With(EventText, { description: "The event's signature, with `indexed`." }),
  contracts: Type.Array(ContractText, {
    minItems: 1,
    maxItems: 1_000,
    description: 'Contracts whose logs count.',
  }),
};
const Source = Type.Object(source, closed);

const Cap = (description: string) =>
  Type.Number({ exclusiveMinimum: 0, maximum: Number.MAX_SAFE_INTEGER, description });
const PerUserPerDay = Cap('Most points of a user in a UTC day.');
const Share = Type.Number({ minimum: 0, maximum: 1, description: 'Share of the points of each award.' });

const common = {
  id: Type.String({
    title: 'up to 64 lower-case letters, digits, dots, underscores and hyphens',
    pattern: '^[a-z0-9][a-z0-9._-]{0,63}$',
    description: 'Never change it. Entries with the same id are versions of one rule.',
  }),
  version: Type.Integer({
    minimum: 1,
    maximum: 2_147_483_647,
    description: 'A later version replaces the former one at its `from`.',
  }),
  category: Type.With(CategoryText, { description: 'Category of the awards.' }),
  from: Type.Optional(Type.With(Mark, { description: 'The rule applies from here on.' })),
  to: Type.Optional(Type.With(Mark, { description: 'The rule applies until just before here.' })),
  deny: Type.Optional(
    Type.Array(AddressText, {
      maxItems: 10_000,
      description: 'Addresses that never earn points, such as routers, pools and contracts.',
    }),
  ),
  when: Type.Optional(Type.With(ExpressionText, { description: 'The condition for an award.' })),
  points: Type.With(ExpressionText, { description: 'The points of an award.' }),
  multipliers: Type.Optional(
    Type.Array(
      Type.Object(
        {
          season: Type.Optional(Type.String({ description: 'A period under `points.seasons`.' })),
          from: Type.Optional(Type.With(DayText, { description: 'First day of the period.' })),
          to: Type.Optional(Type.With(DayText, { description: 'First day after the period.' })),
          x: Type.Number({ exclusiveMinimum: 0, maximum: 1_000_000, description: 'The factor.' }),
        },
        closed,
      ),
      { maxItems: 100, description: 'Factors for periods. All that apply are multiplied.' },
    ),
  ),
  referralShare: Type.Optional(Share),
};

const EventRule = Type.Object(
  {
    type: Type.Literal('event'),
    ...common,
    source: Source,
    user: Type.With(UserText, { description: 'Who earns the points.' }),
    caps: Type.Optional(
      Type.Object(
        {
          perTx: Type.Optional(Cap('Most points in one transaction.')),
          perUserPerDay: Type.Optional(PerUserPerDay),
        },
        closed,
      ),
    ),
  },
  closed,
);

const AccrualRule = Type.Object(
  {
    type: Type.Literal('accrual'),
    ...common,
    token: Type.Optional(Type.With(ContractText, { description: 'Count balances of this token.' })),
    movements: Type.Optional(
      Type.Array(
        Type.Object(
          {
            ...source,
            user: Type.With(UserText, { description: 'Whose balance changes.' }),
            change: Type.With(ExpressionText, { description: 'The change: an integer expression.' }),
            when: Type.Optional(Type.With(ExpressionText, { description: 'The condition for the change.' })),
          },
          closed,
        ),
        {
          minItems: 1,
          maxItems: MOVEMENTS_MAX,
          description: 'Count a balance that these events change, instead of a token.',
        },
      ),
    ),
    caps: Type.Optional(Type.Object({ perUserPerDay: Type.Optional(PerUserPerDay) }, closed)),
  },
  closed,
);

/** One rule; the others may be wrong. */
export const PointsRule = Type.Union([EventRule, AccrualRule]);

export const Points = Type.Object(
  {
    seasons: Type.Record(
      Type.String(),
      Type.Object(
        {
          from: Type.With(DayText, { description: 'First day of the period.' }),
          to: Type.With(DayText, { description: 'First day after the period.' }),
        },
        closed,
      ),
      {
        default: {},
        description: 'Periods by name, for multipliers.',
      },
    ),
    referral: Type.Optional(
      Type.Object(
        {
          source: Source,
          user: Type.With(ArgumentText, { default: 'arg:user', description: 'The referred user.' }),
          referrer: Type.With(ArgumentText, {
            default: 'arg:referrer',
            description: 'Who referred that user.',
          }),
          share: Share,
          firstWins: Type.Boolean({
            default: true,
            description: "true: a user's first referrer stays. false: the newest one counts.",
          }),
          noSelf: Type.Boolean({ default: true, description: 'Ignore users who refer themselves.' }),
        },
        closed,
      ),
    ),
    rules: Type.Array(PointsRule, {
      maxItems: 1_000,
      default: [],
      description: 'Rules that award points.',
    }),
  },
  { ...closed, default: {} },
);
