/**
 * The section `points` of the configuration file. domain/points defines what the rules mean.
 */
import Type from 'typebox';
import { MOVEMENTS_MAX } from '../domain/points/rules.ts';
import { parseDay } from '../domain/points/window.ts';
import { AddressText, ContractText } from './scalars.ts';

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
  event: EventText,
  contracts: Type.Array(ContractText, { minItems: 1, maxItems: 1_000 }),
};
const Source = Type.Object(source, closed);

const Cap = Type.Number({ exclusiveMinimum: 0, maximum: Number.MAX_SAFE_INTEGER });
const Share = Type.Number({ minimum: 0, maximum: 1, description: 'Share of the points of each award.' });

const common = {
  id: Type.String({
    title: 'up to 64 lower-case letters, digits, dots, underscores and hyphens',
    pattern: '^[a-z0-9][a-z0-9._-]{0,63}$',
    description: 'Never change it. Entries with the same id are versions of one rule.',
  }),
  version: Type.Integer({ minimum: 1, maximum: 2_147_483_647 }),
  category: Type.String({ title: 'a word of up to 64 characters', pattern: '^\\S{1,64}$' }),
  from: Type.Optional(Mark),
  to: Type.Optional(Mark),
  deny: Type.Optional(
    Type.Array(AddressText, {
      maxItems: 10_000,
      description: 'Addresses that never earn points, such as routers, pools and contracts.',
    }),
  ),
  when: Type.Optional(ExpressionText),
  points: ExpressionText,
  multipliers: Type.Optional(
    Type.Array(
      Type.Object(
        {
          season: Type.Optional(Type.String()),
          from: Type.Optional(DayText),
          to: Type.Optional(DayText),
          x: Type.Number({ exclusiveMinimum: 0, maximum: 1_000_000 }),
        },
        closed,
      ),
      { maxItems: 100 },
    ),
  ),
  referralShare: Type.Optional(Share),
};

const EventRule = Type.Object(
  {
    type: Type.Literal('event'),
    ...common,
    source: Source,
    user: UserText,
    caps: Type.Optional(
      Type.Object({ perTx: Type.Optional(Cap), perUserPerDay: Type.Optional(Cap) }, closed),
    ),
  },
  closed,
);

const AccrualRule = Type.Object(
  {
    type: Type.Literal('accrual'),
    ...common,
    token: Type.Optional(ContractText),
    movements: Type.Optional(
      Type.Array(
        Type.Object(
          { ...source, user: UserText, change: ExpressionText, when: Type.Optional(ExpressionText) },
          closed,
        ),
        { minItems: 1, maxItems: MOVEMENTS_MAX },
      ),
    ),
    caps: Type.Optional(Type.Object({ perUserPerDay: Type.Optional(Cap) }, closed)),
  },
  closed,
);

/** One rule; the others may be wrong. */
export const PointsRule = Type.Union([EventRule, AccrualRule]);

export const Points = Type.Object(
  {
    seasons: Type.Record(Type.String(), Type.Object({ from: DayText, to: DayText }, closed), {
      default: {},
      description: 'Periods by name, for multipliers.',
    }),
    referral: Type.Optional(
      Type.Object(
        {
          source: Source,
          user: Type.With(ArgumentText, { default: 'arg:user' }),
          referrer: Type.With(ArgumentText, { default: 'arg:referrer' }),
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
