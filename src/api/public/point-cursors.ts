/**
 * Cursors of the lists of points: the position of the last entry of a page, as a text.
 */
import { decimal, decimalText } from '../../core/decimal.ts';
import { Fault } from '../../core/fault.ts';
import { parseAddress } from '../../core/hex.ts';
import type { AwardCursor, LeaderCursor } from '../../store/points/point-lists.ts';

export const formatLeaderPlace = ({ points, user }: LeaderCursor): string => `${decimalText(points)}_${user}`;

/** @throws Fault `invalid` for a text that formatLeaderPlace doesn't produce. */
export function parseLeaderPlace(text: string): LeaderCursor {
  const [, points, user] = /^(-?\d{1,100}(?:\.\d{1,100})?)_(0x[0-9a-f]{40})$/.exec(text) ?? [];
  if (points === undefined || user === undefined) throw invalidCursor();
  return { points: decimal(points), user: parseAddress(user) };
}

export const formatAwardPlace = ({ awardedAt, id }: AwardCursor): string => `${awardedAt.getTime()}_${id}`;

/** @throws Fault `invalid` for a text that formatAwardPlace doesn't produce. */
export function parseAwardPlace(text: string): AwardCursor {
  const [, timeMs, id] = /^(\d{1,14})_(\d{1,15})$/.exec(text) ?? [];
  if (timeMs === undefined) throw invalidCursor();
  return { awardedAt: new Date(Number(timeMs)), id: Number(id) };
}

const invalidCursor = () => new Fault('invalid', 'must be the cursor of a link header');
