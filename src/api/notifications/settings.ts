/**
 * Routes for the settings of a watched address. They are a separate resource, so the bodies of spec 4.5 stay as specified.
 */
import { type Static, Type } from 'typebox';
import type { Problem } from '../../core/fault.ts';
import { parseAddress } from '../../core/hex.ts';
import {
  CONFIRMATIONS_MAX,
  defaultSettings,
  findSettings,
  replaceSettings,
  type WatchSettings,
} from '../../store/watchers/settings.ts';
import type { Api, ApiOptions } from '../context.ts';
import { createShardGate } from '../http/auth.ts';
import { strict } from '../http/body-names.ts';
import { invalidRequest } from '../http/errors.ts';
import { found, PATH, parseId } from './watched-addresses.ts';

/** The list is read with every token transfer of the address. */
const TOKENS_MAX = 100;
const AMOUNT_MAX = 2n ** 256n - 1n;

/** Decimal digits, or a number that a double represents exactly. */
const Amount = Type.Unsafe<string | number>({
  type: ['string', 'integer'],
  pattern: '^[0-9]{1,78}$',
  minimum: 0,
  maximum: Number.MAX_SAFE_INTEGER,
});
const Direction = Type.Enum(['in', 'out', 'both']);
const Token = Type.Object(
  {
    address: Type.String({ pattern: '^(0[xX])?[0-9a-fA-F]{40}$' }),
    min_amount: Type.Optional(Amount),
  },
  strict,
);
const Body = Type.Object(
  {
    confirmations: Type.Optional(Type.Integer({ minimum: 0, maximum: CONFIRMATIONS_MAX })),
    direction: Type.Optional(Direction),
    min_amount: Type.Optional(Amount),
    tokens: Type.Optional(Type.Array(Token, { maxItems: TOKENS_MAX })),
    removed: Type.Optional(Type.Boolean()),
    strict_order: Type.Optional(Type.Boolean()),
  },
  strict,
);
const Settings = Type.Object({
  confirmations: Type.Integer(),
  direction: Direction,
  min_amount: Type.String(),
  tokens: Type.Array(Type.Object({ address: Type.String(), min_amount: Type.String() })),
  removed: Type.Boolean(),
  strict_order: Type.Boolean(),
});
const One = Type.Object({ success: Type.Literal(true), data: Settings });
const Done = Type.Object({ success: Type.Literal(true) });
const Params = Type.Object({ id: Type.String() });

const settings = {
  confirmations: 12,
  direction: 'in',
  min_amount: '1000000000000000',
  tokens: [{ address: '0x00000000000000000000000000000000000000b2', min_amount: '1000000' }],
  removed: true,
  strict_order: false,
};
const operations = {
  get: { summary: 'Settings of a watched address', example: { success: true, data: settings } },
  replace: {
    summary: 'Replace the settings of a watched address',
    description:
      'Omitted fields get their defaults. The settings apply to transfers that are stored from then on.',
    bodyExample: settings,
    example: { success: true, data: settings },
  },
  remove: { summary: 'Remove the settings of a watched address', example: { success: true } },
};

/** GET returns every setting. PUT replaces all of them, and omitted ones get their defaults. DELETE restores the defaults. */
export function addSettingsRoutes(api: Api, options: ApiOptions): void {
  const { database, clock, confirmations } = options;
  const { onRequest, watcherOf } = createShardGate(options);
  const url = `${PATH}/:id/settings`;
  const success = (settings: WatchSettings) => ({
    success: true as const,
    data: toJson(settings, confirmations),
  });

  api.get(
    url,
    { onRequest, schema: { params: Params, response: { 200: One } }, config: { operation: operations.get } },
    async (request) =>
      success(found(await findSettings(database, watcherOf(request), parseId(request.params.id)))),
  );

  api.put(
    url,
    {
      onRequest,
      schema: { params: Params, body: Body, response: { 200: One } },
      config: { operation: operations.replace },
    },
    async (request) => {
      const id = parseId(request.params.id);
      const change = { settings: parseSettings(request.body, confirmations), now: clock.now };
      return success(found(await replaceSettings(database, watcherOf(request), id, change)));
    },
  );

  api.delete(
    url,
    {
      onRequest,
      schema: { params: Params, response: { 200: Done } },
      config: { operation: operations.remove },
    },
    async (request) => {
      const change = { settings: defaultSettings, now: clock.now };
      found(await replaceSettings(database, watcherOf(request), parseId(request.params.id), change));
      return { success: true as const };
    },
  );
}

/** Checks what the schema can't express. @throws Fault `invalid` */
function parseSettings(body: Static<typeof Body>, confirmationsMin: number): WatchSettings {
  const { confirmations = 0, direction = 'both', removed = false, strict_order = false } = body;
  const minAmount = BigInt(body.min_amount ?? 0);
  const listed = (body.tokens ?? []).map(
    ({ address, min_amount = 0 }) => [parseAddress(address), BigInt(min_amount)] as const,
  );
  const tokens = new Map(listed);
  const problems: Problem[] = [];
  if (body.confirmations !== undefined && confirmations < confirmationsMin)
    problems.push({
      path: '/confirmations',
      message: `must be at least ${confirmationsMin}, the service's own`,
    });
  if (tokens.size < listed.length) problems.push({ path: '/tokens', message: 'must not name a token twice' });
  const amounts: [path: string, amount: bigint][] = [
    ['/min_amount', minAmount],
    ...listed.map(([, amount], index): [string, bigint] => [`/tokens/${index}/min_amount`, amount]),
  ];
  for (const [path, amount] of amounts)
    if (amount > AMOUNT_MAX) problems.push({ path, message: 'must be at most 2^256 - 1' });
  if (problems.length > 0) throw invalidRequest(problems);
  return { confirmations, direction, minAmount, tokens, removed, strictOrder: strict_order };
}

/** Amounts are strings of digits, which every JSON parser keeps exact. The result is a valid body for PUT. */
function toJson(settings: WatchSettings, confirmationsMin: number): Static<typeof Settings> {
  return {
    confirmations: Math.max(settings.confirmations, confirmationsMin),
    direction: settings.direction,
    min_amount: String(settings.minAmount),
    tokens: Array.from(settings.tokens, ([address, amount]) => ({ address, min_amount: String(amount) })),
    removed: settings.removed,
    strict_order: settings.strictOrder,
  };
}
